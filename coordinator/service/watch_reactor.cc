#include "common/grpc/grpc_status.h"
#include "coordinator/service/loop_reactors.h"

namespace stagecoach {
namespace {

class WatchReactor final : public grpc::ServerWriteReactor<RunStatus> {
 public:
  WatchReactor(EventLoop* loop, FleetControl* fleet, const std::string& run) : loop_(loop), fleet_(fleet) {
    handle_ = std::make_shared<Handle>(this);
    loop_->Post([this, handle = handle_, run] {
      if (handle->reactor == nullptr) return;
      const absl::Status status = fleet_->Watch(run, handle);
      if (!status.ok()) FinishOnce(status);
    });
  }

  void OnWriteDone(bool ok) noexcept override {
    loop_->Post([this, handle = handle_, ok] {
      if (handle->reactor == nullptr) return;
      writing_ = false;
      if (!ok) End();
    });
  }
  void OnCancel() noexcept override {
    loop_->Post([this, handle = handle_] {
      if (handle->reactor != nullptr) End();
    });
  }
  void OnDone() noexcept override {
    loop_->Post([this, handle = handle_] {
      handle->reactor = nullptr;
      fleet_->Unwatch(handle.get());
      delete this;
    });
  }

 private:
  struct Handle final : RunWatcher {
    explicit Handle(WatchReactor* it) : reactor(it) {}
    bool busy() const override { return reactor != nullptr && reactor->writing_; }
    void Send(const RunStatus& status) override {
      if (reactor == nullptr || reactor->finished_) return;
      reactor->status_ = status;
      reactor->writing_ = true;
      reactor->StartWrite(&reactor->status_);
    }
    void Close(const absl::Status& status) override {
      if (reactor != nullptr) reactor->FinishOnce(status);
    }
    WatchReactor* reactor;
  };

  void End() {
    fleet_->Unwatch(handle_.get());
    FinishOnce(absl::OkStatus());
  }
  void FinishOnce(const absl::Status& status) {
    if (finished_) return;
    finished_ = true;
    Finish(ToGrpcStatus(status));
  }

  EventLoop* const loop_;
  FleetControl* const fleet_;
  std::shared_ptr<Handle> handle_;
  RunStatus status_;
  bool writing_ = false, finished_ = false;
};

}  // namespace

grpc::ServerWriteReactor<RunStatus>* NewWatchReactor(EventLoop* loop, FleetControl* fleet,
                                                     const WatchRequest& request) {
  return new WatchReactor(loop, fleet, request.run());
}

}  // namespace stagecoach
