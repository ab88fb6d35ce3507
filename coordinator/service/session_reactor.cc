#include <deque>

#include "absl/strings/str_cat.h"
#include "common/grpc/grpc_status.h"
#include "coordinator/service/loop_reactors.h"

namespace stagecoach {
namespace {

// Messages that wait for a worker that does not read: a run sends about ten, heartbeats are answered four times a
// second.
constexpr size_t kMaxQueuedMessages = 256;

class SessionReactor final : public grpc::ServerBidiReactor<WorkerMessage, CoordinatorMessage> {
 public:
  SessionReactor(EventLoop* loop, FleetControl* fleet) : loop_(loop), fleet_(fleet) {
    handle_ = std::make_shared<Handle>(this);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) noexcept override {
    loop_->Post([this, handle = handle_, ok] {
      if (handle->reactor == nullptr) return;
      if (!ok) return End("its stream ended (killed, crashed, or the connection broke)");
      fleet_->OnMessage(handle, incoming_);
      if (!finished_) StartRead(&incoming_);
    });
  }
  void OnWriteDone(bool ok) noexcept override {
    loop_->Post([this, handle = handle_, ok] {
      if (handle->reactor == nullptr) return;
      outgoing_.pop_front();
      if (!ok) return End("its stream broke");
      WriteNext();
    });
  }
  void OnCancel() noexcept override {
    loop_->Post([this, handle = handle_] {
      if (handle->reactor != nullptr) End("its stream ended (killed, crashed, or the connection broke)");
    });
  }
  void OnDone() noexcept override {
    loop_->Post([this, handle = handle_] {
      handle->reactor = nullptr;
      delete this;
    });
  }

 private:
  struct Handle final : WorkerSession {
    explicit Handle(SessionReactor* it) : reactor(it) {}
    void Send(const CoordinatorMessage& message) override {
      if (reactor != nullptr) reactor->Enqueue(message);
    }
    void Close(const absl::Status& status) override {
      if (reactor != nullptr) reactor->FinishOnce(status);
    }
    SessionReactor* reactor;
  };

  void End(absl::string_view reason) {
    const std::shared_ptr<Handle> handle = handle_;
    fleet_->OnClosed(handle, reason);
    FinishOnce(absl::OkStatus());
  }
  void Enqueue(const CoordinatorMessage& message) {
    if (finished_) return;
    if (outgoing_.size() >= kMaxQueuedMessages) {
      // Not End(): the caller may be in the middle of the fleet's tables. The loop hears of it next.
      loop_->Post([this, handle = handle_] {
        if (handle->reactor != nullptr) End("it does not read its messages");
      });
      return;
    }
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) WriteNext();
  }
  void WriteNext() {
    if (!finished_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void FinishOnce(const absl::Status& status) {
    if (finished_) return;
    finished_ = true;
    Finish(ToGrpcStatus(status));
  }

  EventLoop* const loop_;
  FleetControl* const fleet_;
  std::shared_ptr<Handle> handle_;
  WorkerMessage incoming_;
  std::deque<CoordinatorMessage> outgoing_;  // the first one is being written
  bool finished_ = false;
};

}  // namespace

grpc::ServerBidiReactor<WorkerMessage, CoordinatorMessage>* NewSessionReactor(EventLoop* loop, FleetControl* fleet) {
  return new SessionReactor(loop, fleet);
}

}  // namespace stagecoach
