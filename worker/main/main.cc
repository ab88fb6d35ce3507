// stagecoach-worker: joins a coordinator and executes the stages that it is given.
//
// Exit statuses: common/exit_code.h.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/grpc/channel_settings.h"
#include "common/grpc/poller_tick.h"
#include "common/host_memory.h"
#include "common/host_port.h"
#include "common/log.h"
#include "worker/control/grpc_control_stream.h"
#include "worker/link/grpc_link.h"
#include "worker/link/link_probe.h"
#include "worker/main/host_facts.h"
#include "worker/main/worker_node.h"
#include "worker/main/worker_options.h"

namespace stagecoach {
namespace {

int Complain(const absl::Status& status, int code) {
  fprintf(stderr, "stagecoach-worker: %s\n", std::string(status.message()).c_str());
  return code;
}

// Host memory for tensors on their way. A quarter of what the stage may use: windows of 32 frames in four streams fit
// many times; a neighbour that sends more is refused by its window long before.
size_t PoolBytes() { return std::max<size_t>(AvailableMemoryBytes() / 4, size_t{64} << 20); }

absl::StatusOr<ComputeBackend> MakeBackend(const WorkerFlags& flags) {
  if (flags.executor == "fake") {
    return FakeBackend(FakeCosts{flags.fake_forward_ms / 1e3, flags.fake_backward_ms / 1e3, 0});
  }
  return TorchBackend(flags.device, flags.threads);
}

absl::StatusOr<LinkMeasurement> Probe(const std::string& address) {
  const absl::StatusOr<LinkProbeResult> result = ProbeLink(address);
  if (!result.ok()) return result.status();
  return LinkMeasurement{result->rtt_seconds, result->bytes_per_second};
}

int Work(const WorkerFlags& flags, const sigset_t& signals) {
  // First: the device must be chosen before libtorch is asked for anything.
  absl::StatusOr<ComputeBackend> backend = MakeBackend(flags);
  if (!backend.ok()) return Complain(backend.status(), kExitConfiguration);

  const std::shared_ptr<PollerTick> tick = PollerTick::Shared();
  WorkerNode node;
  static std::atomic<WorkerNode*> running{nullptr};  // outlives the thread, which nobody joins
  running = &node;
  std::thread([signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    if (WorkerNode* const it = running) it->RequestExit();
    // A second one means that the orderly way takes too long.
    sigwait(&signals, &signal);
    _exit(128 + signal);
  }).detach();

  WorkerNodeOptions options;
  options.pool = HostBufferPool::Create(PoolBytes());
  GrpcLinkOptions link_options;
  link_options.loop = node.loop();
  link_options.pool = options.pool;
  link_options.listen = flags.listen;
  absl::StatusOr<std::unique_ptr<GrpcLinkFactory>> links = GrpcLinkFactory::Create(link_options);
  if (!links.ok()) return Complain(links.status(), kExitUnavailable);
  const int port = (*links)->listen_port();
  const absl::Status written = WritePortFile(flags.port_file, port);
  if (!written.ok()) return Complain(written, kExitConfiguration);

  GrpcControlConnector connector(MakeChannel(flags.coordinator, ChannelKind::kControl), node.loop());
  options.name = flags.name.empty() ? DefaultWorkerName() : flags.name;
  options.advertised_address = flags.advertise.empty()
                                   ? absl::StrCat(flags.listen.substr(0, flags.listen.rfind(':')), ":", port)
                                   : flags.advertise;
  options.memory_cap_bytes = flags.memory_cap_bytes;
  options.dial = flags.dial;
  options.backend = *std::move(backend);
  options.connector = &connector;
  options.links = links->get();
  options.probe_link = Probe;
  options.rejections = [factory = links->get()] { return factory->rejections(); };
  Log(LogLevel::kInfo, options.name, "started",
      {{"address", options.advertised_address},
       {"device", options.backend.device},
       {"coordinator", flags.coordinator}});
  const absl::Status result = node.Run(std::move(options));
  running = nullptr;
  (*links)->Shutdown();
  if (!result.ok()) return Complain(result, ServiceExitCodeOf(result));
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  // Blocked before the first thread starts, so that only the one that waits for them sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  const auto flags = stagecoach::ParseWorkerFlags(argc, argv);
  if (!flags.ok()) return stagecoach::Complain(flags.status(), stagecoach::kExitUsage);
  if (!flags->help.empty()) {
    fputs(flags->help.c_str(), stdout);
    return 0;
  }
  return stagecoach::Work(*flags, signals);
}
