#include "worker/control/grpc_control_stream.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/grpc_status.h"
#include "protos/coordinator.grpc.pb.h"

namespace stagecoach {
namespace {

// Step reports are about 60 bytes, a few a second; ten thousand unsent ones mean that the coordinator does not read.
constexpr size_t kMaxQueuedMessages = 10'000;

}  // namespace

struct GrpcControlConnector::State {
  std::unique_ptr<Coordinator::Stub> stub;
  std::shared_ptr<grpc::Channel> channel;
  EventLoop* loop = nullptr;
  std::mutex mutex;
  std::condition_variable none_open;
  int open_streams = 0;
};

namespace {

class SessionReactor;

// What the stream's owner, the reactor and the functions posted by it share.
struct Handle {
  ControlCallbacks callbacks;         // on the loop only; cleared by who destroys the stream
  std::mutex mutex;                   // leaf
  SessionReactor* reactor = nullptr;  // cleared before the reactor deletes itself
};

// Deletes itself in OnDone and nowhere else.
class SessionReactor final : public grpc::ClientBidiReactor<WorkerMessage, CoordinatorMessage> {
 public:
  SessionReactor(EventLoop* loop, std::shared_ptr<Handle> handle, std::function<void()> on_gone)
      : loop_(loop), handle_(std::move(handle)), on_gone_(std::move(on_gone)) {}

  void Begin(Coordinator::Stub& stub) {
    stub.async()->Session(&context_, this);
    AddHold();  // for writes from the loop; removed when the stream ends
    StartRead(&incoming_);
    StartCall();
  }

  // Holding handle->mutex, as Cancel.
  void Write(WorkerMessage message) {
    if (ended_) return;
    if (queue_.size() >= kMaxQueuedMessages) {
      overflow_ = true;
      context_.TryCancel();
      return;
    }
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) noexcept override {
    const std::lock_guard lock(handle_->mutex);
    queue_.pop_front();
    if (!ok) return queue_.clear();  // the read side ends as well and brings the status
    if (!queue_.empty()) StartWrite(&queue_.front());
  }

  void OnReadDone(bool ok) noexcept override {
    if (!ok) {
      const std::lock_guard lock(handle_->mutex);
      ended_ = true;
      RemoveHold();
      return;
    }
    loop_->Post([handle = handle_, message = std::move(incoming_)]() mutable {
      if (handle->callbacks.on_message) handle->callbacks.on_message(std::move(message));
    });
    incoming_ = CoordinatorMessage();
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& grpc_status) noexcept override {
    absl::Status status = FromGrpcStatus(grpc_status);
    {
      const std::lock_guard lock(handle_->mutex);
      handle_->reactor = nullptr;
      if (overflow_) {
        status = absl::ResourceExhaustedError(
            absl::StrCat("the coordinator does not read: unsent messages=", kMaxQueuedMessages));
      }
    }
    loop_->Post([handle = handle_, status = std::move(status)] {
      if (handle->callbacks.on_closed) handle->callbacks.on_closed(status);
    });
    const std::function<void()> on_gone = std::move(on_gone_);
    delete this;
    on_gone();
  }

 private:
  EventLoop* const loop_;
  const std::shared_ptr<Handle> handle_;
  std::function<void()> on_gone_;
  grpc::ClientContext context_;
  CoordinatorMessage incoming_;
  std::deque<WorkerMessage> queue_;  // the front is being written
  bool ended_ = false, overflow_ = false;
};

class GrpcControlStream final : public ControlStream {
 public:
  explicit GrpcControlStream(std::shared_ptr<Handle> handle) : handle_(std::move(handle)) {}

  ~GrpcControlStream() override {
    // Destruction may happen inside one of the callbacks: they are moved out, not destroyed under their own feet.
    const ControlCallbacks callbacks = std::exchange(handle_->callbacks, ControlCallbacks{});
    const std::lock_guard lock(handle_->mutex);
    if (handle_->reactor != nullptr) handle_->reactor->Cancel();
  }

  void Send(WorkerMessage message) override {
    const std::lock_guard lock(handle_->mutex);
    if (handle_->reactor != nullptr) handle_->reactor->Write(std::move(message));
  }

 private:
  const std::shared_ptr<Handle> handle_;
};

}  // namespace

GrpcControlConnector::GrpcControlConnector(std::shared_ptr<grpc::Channel> channel, EventLoop* loop)
    : state_(std::make_shared<State>()) {
  state_->stub = Coordinator::NewStub(channel);
  state_->channel = std::move(channel);
  state_->loop = loop;
}

GrpcControlConnector::~GrpcControlConnector() {
  std::unique_lock lock(state_->mutex);
  state_->none_open.wait(lock, [this] { return state_->open_streams == 0; });
}

std::unique_ptr<ControlStream> GrpcControlConnector::Open(ControlCallbacks callbacks) {
  auto handle = std::make_shared<Handle>();
  handle->callbacks = std::move(callbacks);
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->open_streams;
  }
  // The connector waits for open_streams == 0, so `state` outlives the call.
  auto* reactor = new SessionReactor(state_->loop, handle, [state = state_.get()] {
    const std::lock_guard lock(state->mutex);
    --state->open_streams;
    state->none_open.notify_all();
  });
  handle->reactor = reactor;
  reactor->Begin(*state_->stub);
  return std::make_unique<GrpcControlStream>(std::move(handle));
}

}  // namespace stagecoach
