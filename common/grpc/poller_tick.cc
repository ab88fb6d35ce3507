#include "common/grpc/poller_tick.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "protos/link.grpc.pb.h"

namespace stagecoach {
namespace {

// Pollers give up after 1 s without a completion; with up to 16 of them each must see one now and then.
constexpr std::chrono::milliseconds kPeriod(250);

class EmptyService final : public PeerLink::CallbackService {
  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const EchoRequest*, EchoReply*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

struct PollerTick::Parts {
  void Run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (!stopping) {
      if (!call_in_flight) {
        call_in_flight = true;
        context = std::make_unique<grpc::ClientContext>();
        stub->async()->Echo(context.get(), &request, &reply, [this](const grpc::Status&) {
          std::lock_guard<std::mutex> guard(mutex);
          call_in_flight = false;
          wake.notify_all();
        });
      }
      wake.wait_for(lock, kPeriod, [this] { return stopping; });
    }
    wake.wait(lock, [this] { return !call_in_flight; });
  }

  EmptyService service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<PeerLink::Stub> stub;
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  bool call_in_flight = false;  // at most one: a stalled process gathers none
  std::unique_ptr<grpc::ClientContext> context;
  EchoRequest request;
  EchoReply reply;
  std::thread thread;
};

PollerTick::PollerTick() : parts_(std::make_unique<Parts>()) {
  grpc::ServerBuilder builder;  // no port: reachable from this process alone
  builder.RegisterService(&parts_->service);
  parts_->server = builder.BuildAndStart();
  parts_->stub = PeerLink::NewStub(parts_->server->InProcessChannel(grpc::ChannelArguments()));
  parts_->thread = std::thread([this] { parts_->Run(); });
}

PollerTick::~PollerTick() {
  {
    std::lock_guard<std::mutex> lock(parts_->mutex);
    parts_->stopping = true;
    parts_->wake.notify_all();
  }
  parts_->thread.join();
  parts_->context.reset();
  parts_->stub.reset();
  parts_->server->Shutdown();
  parts_->server->Wait();
}

std::shared_ptr<PollerTick> PollerTick::Shared() {
  static std::mutex mutex;
  static std::weak_ptr<PollerTick> shared;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<PollerTick> tick = shared.lock();
  if (tick == nullptr) {
    tick = std::shared_ptr<PollerTick>(new PollerTick);
    shared = tick;
  }
  return tick;
}

}  // namespace stagecoach
