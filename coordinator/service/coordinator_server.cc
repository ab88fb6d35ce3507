#include "coordinator/service/coordinator_server.h"

#include <chrono>
#include <future>

#include "common/event_loop.h"
#include "common/grpc/channel_settings.h"
#include "common/grpc/grpc_status.h"
#include "common/grpc/poller_tick.h"
#include "common/status_macros.h"
#include "coordinator/service/fleet_control.h"
#include "coordinator/service/loop_reactors.h"
#include "protos/coordinator.grpc.pb.h"

#ifndef STAGECOACH_VERSION
#error "the build defines STAGECOACH_VERSION"
#endif

namespace stagecoach {
namespace {

// What all connections together may make gRPC hold (01 section 7, G8): 64 MiB and 16 KiB for each of 1,000 workers.
constexpr size_t kQuotaBytes = (size_t{64} << 20) + 1000 * (size_t{16} << 10);
// That the status shows: some kilobytes, and more than a person reads.
constexpr size_t kMaxEarlierRuns = 100;
// Calls that are not done by then are cancelled: the loop has closed all streams before.
constexpr auto kShutdownGrace = std::chrono::seconds(2);

// Handlers only post: decisions are the loop's.
class CoordinatorService final : public Coordinator::CallbackService {
 public:
  CoordinatorService(EventLoop* loop, FleetControl* fleet) : loop_(loop), fleet_(fleet) {}

  grpc::ServerBidiReactor<WorkerMessage, CoordinatorMessage>* Session(grpc::CallbackServerContext*) override {
    return NewSessionReactor(loop_, fleet_);
  }
  grpc::ServerWriteReactor<RunStatus>* Watch(grpc::CallbackServerContext*, const WatchRequest* request) override {
    return NewWatchReactor(loop_, fleet_, *request);
  }
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const SubmitRequest* request,
                                   SubmitReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    loop_->Post([this, reactor, request, reply] {
      const auto run = fleet_->Submit(*request);
      if (run.ok()) reply->set_run(*run);
      reactor->Finish(ToGrpcStatus(run.status()));
    });
    return reactor;
  }
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const StopRequest* request,
                                 StopReply*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    loop_->Post([this, reactor, request] { reactor->Finish(ToGrpcStatus(fleet_->Stop(request->run()))); });
    return reactor;
  }
  grpc::ServerUnaryReactor* FleetStatus(grpc::CallbackServerContext* context, const FleetStatusRequest*,
                                        FleetStatusReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    loop_->Post([this, reactor, reply] {
      *reply = fleet_->Status();
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

 private:
  EventLoop* const loop_;
  FleetControl* const fleet_;
};

}  // namespace

struct CoordinatorServer::Parts {
  std::shared_ptr<PollerTick> tick = PollerTick::Shared();
  std::unique_ptr<RunJournal> journal;
  ThreadEventLoop store{"store"};
  ThreadEventLoop loop{"coordinator"};
  std::unique_ptr<FleetControl> fleet;
  std::unique_ptr<CoordinatorService> service;
  StartedServer server;
  Duration tick_interval{0};
  bool shut_down = false;

  void Tick() {
    fleet->OnTick();
    loop.PostAfter(tick_interval, [this] { Tick(); });
  }
  // Runs `function` on the loop and waits for it.
  template <typename Function>
  auto OnLoop(Function function) {
    std::promise<decltype(function())> promise;
    loop.Post([&] { promise.set_value(function()); });
    return promise.get_future().get();
  }
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(const CoordinatorOptions& options) {
  auto parts = std::make_unique<Parts>();
  if (options.state_dir.empty()) {
    parts->journal = CreateMemoryJournal();
  } else {
    ASSIGN_OR_RETURN(parts->journal, OpenSqliteJournal(options.state_dir));
  }
  FleetControl::Options fleet_options;
  fleet_options.membership = options.membership;
  fleet_options.run_limits = options.run_limits;
  fleet_options.version = STAGECOACH_VERSION;
  ASSIGN_OR_RETURN(fleet_options.term, parts->journal->NextTerm());
  ASSIGN_OR_RETURN(fleet_options.earlier_runs, parts->journal->ListRuns(kMaxEarlierRuns));
  parts->fleet = std::make_unique<FleetControl>(fleet_options, &parts->loop, &parts->store, parts->journal.get());
  parts->service = std::make_unique<CoordinatorService>(&parts->loop, parts->fleet.get());
  ASSIGN_OR_RETURN(parts->server,
                   StartServer(options.listen, ChannelKind::kControl, kQuotaBytes, parts->service.get()));
  parts->tick_interval = fleet_options.tick;
  Parts* const running = parts.get();
  parts->loop.Post([running] { running->Tick(); });
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(parts)));
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

CoordinatorServer::~CoordinatorServer() { Shutdown(); }

int CoordinatorServer::port() const { return parts_->server.port; }

void CoordinatorServer::Shutdown() {
  if (parts_->shut_down) return;
  parts_->shut_down = true;
  parts_->OnLoop([this] {
    parts_->fleet->Shutdown();
    return true;
  });
  parts_->server.server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  parts_->server.server->Wait();
  // What the loop has posted to the store is written; what the store posts back finds a loop that still turns.
  parts_->store.Stop();
  parts_->loop.Stop();
}

}  // namespace stagecoach
