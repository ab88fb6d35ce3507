#include "worker/link/grpc_link.h"

#include <chrono>
#include <future>
#include <mutex>
#include <utility>

#include "common/grpc/poller_tick.h"
#include "common/status_macros.h"
#include "worker/link/grpc_frame_client.h"
#include "worker/link/grpc_frame_server.h"

namespace stagecoach {
namespace {

constexpr std::chrono::milliseconds kTick(250);  // acknowledgements, signs of life, deadlines

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct GrpcLinkFactory::Parts {
  EventLoop* loop = nullptr;
  std::mutex mutex;
  bool down = false;
  std::shared_ptr<PollerTick> poller_tick;
  std::unique_ptr<GrpcFrameClients> clients;
  std::unique_ptr<GrpcFrameServer> server;

  // Weak: a timer that is still queued must not keep the parts, nor be the one that destroys them.
  static void ScheduleTick(const std::shared_ptr<Parts>& parts) {
    parts->loop->PostAfter(kTick, [weak = std::weak_ptr<Parts>(parts)] {
      const std::shared_ptr<Parts> alive = weak.lock();
      if (alive == nullptr || alive->IsDown()) return;
      alive->clients->Tick();
      alive->server->Tick();
      ScheduleTick(alive);
    });
  }
  bool IsDown() {
    std::lock_guard<std::mutex> lock(mutex);
    return down;
  }
};

GrpcLinkFactory::GrpcLinkFactory(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}

GrpcLinkFactory::~GrpcLinkFactory() { Shutdown(); }

absl::StatusOr<std::unique_ptr<GrpcLinkFactory>> GrpcLinkFactory::Create(GrpcLinkOptions options) {
  auto parts = std::make_shared<Parts>();
  parts->loop = options.loop;
  parts->poller_tick = PollerTick::Shared();
  GrpcFrameServerOptions server;
  server.loop = options.loop;
  server.pool = std::move(options.pool);
  server.listen = options.listen;
  server.incarnation = options.incarnation;
  server.silence = Seconds(options.silence_seconds);
  server.hello_wait = Seconds(options.hello_wait_seconds);
  server.quota_bytes = options.quota_bytes;
  ASSIGN_OR_RETURN(parts->server, GrpcFrameServer::Start(std::move(server)));
  parts->clients = std::make_unique<GrpcFrameClients>(options.loop, options.silence_seconds);
  Parts::ScheduleTick(parts);
  return std::unique_ptr<GrpcLinkFactory>(new GrpcLinkFactory(std::move(parts)));
}

std::unique_ptr<FrameSender> GrpcLinkFactory::OpenSender(const std::string& address, const StreamIdentity& identity,
                                                         uint64_t first_sequence, double connect_seconds,
                                                         SenderCallbacks callbacks) {
  return parts_->clients->Open(address, identity, first_sequence, connect_seconds, std::move(callbacks));
}

std::unique_ptr<FrameReceiver> GrpcLinkFactory::OpenReceiver(const StreamIdentity& identity, uint64_t first_sequence,
                                                             const ReceiveLimits& limits, ReceiverCallbacks callbacks) {
  return parts_->server->Open(identity, first_sequence, limits, std::move(callbacks));
}

int GrpcLinkFactory::listen_port() const { return parts_->server->port(); }

std::map<std::string, uint64_t> GrpcLinkFactory::rejections() const { return parts_->server->rejects().AsMap(); }

void GrpcLinkFactory::Shutdown() {
  {
    std::lock_guard<std::mutex> lock(parts_->mutex);
    if (parts_->down) return;
    parts_->down = true;
  }
  parts_->clients->Shutdown();
  parts_->server->Shutdown();
  // What the loop runs at this moment may still be a callback; wait for its end. A loop that has stopped drops the
  // message, which ends the wait too.
  constexpr std::chrono::seconds kLoopAnswersWithin(5);
  auto passed = std::make_shared<std::promise<void>>();
  std::future<void> wait = passed->get_future();
  parts_->loop->Post([passed = std::move(passed)] { passed->set_value(); });
  wait.wait_for(kLoopAnswersWithin);
  parts_->poller_tick.reset();
}

}  // namespace stagecoach
