// A worker: registers at the coordinator and does what it is told, one stage at a time.
//
//   idle --AssignStage--> loading --StageReady, StartStage--> running --StageFinished--> finished --ReleaseStage-->
//   idle
//     any state --error--> StageFailed --> idle        any state --ReleaseStage, coordinator lost--> idle
//
// Threading: Create, Run, RequestExit and the destructor on the main thread (RequestExit on any); the rest on the
// worker loop, which it owns, like the compute, the bulk and the averaging loop. Errors: Run returns why the worker
// ended. Ownership: the connector and the link factory outlive Run; they must use loop().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/event_loop.h"
#include "protos/coordinator.pb.h"
#include "worker/control/coordinator_session.h"
#include "worker/link/peer_link.h"
#include "worker/main/compute_backend.h"
#include "worker/main/stage_runner.h"

namespace stagecoach {

struct LinkMeasurement {
  double rtt_seconds = 0, bytes_per_second = 0;
};

struct WorkerNodeOptions {
  std::string name;
  std::string advertised_address;           // host:port for links
  uint64_t memory_cap_bytes = 0;            // of a stage; 0: what is free
  std::map<std::string, std::string> dial;  // worker name -> host:port to dial instead of its advertised address
  ComputeBackend backend;
  std::shared_ptr<HostBufferPool> pool;
  ControlConnector* connector = nullptr;
  LinkFactory* links = nullptr;
  std::function<absl::StatusOr<LinkMeasurement>(const std::string& address)> probe_link;  // blocks; on the bulk thread
  std::function<std::map<std::string, uint64_t>()> rejections;  // refused frames by reason, since the process began
  SessionLimits session_limits;
};

class WorkerNode {
 public:
  WorkerNode();
  ~WorkerNode();
  // For the connector and the link factory, which are made before Run.
  EventLoop* loop() { return &worker_loop_; }

  // Works until RequestExit (then OK) or until the coordinator is given up (then why).
  absl::Status Run(WorkerNodeOptions options);
  void RequestExit();

 private:
  void Begin();
  void End(absl::Status status);
  Register MakeRegister();
  Heartbeat MakeHeartbeat() const;
  WorkerCounters Counters() const;

  void OnMessage(CoordinatorMessage message);
  void OnStop(const StopRun& stop, StageRunner& stage);
  void OnProbe(const ProbeRequest& request);
  void OnLinkRequest(const LinkRequest& request);
  void OnAssign(const AssignStage& assign);
  absl::Status Assign(const AssignStage& assign);
  void CreateExecutor(ExecutorOptions options, uint64_t epoch);
  struct Loaded {
    std::shared_ptr<StageExecutor> executor;
    ExecutorFingerprint hashes;
    std::optional<CommonState> common;  // from a checkpoint of a run with rounds
  };
  static absl::StatusOr<Loaded> Load(const ComputeBackend& backend, const ExecutorOptions& options);
  void OnLoaded(uint64_t epoch, absl::StatusOr<Loaded> loaded);
  void OnReady();
  void ReportFailure(uint64_t epoch, const absl::Status& status, const std::string& peer);
  void Release(const std::string& reason);
  std::string AddressOf(const std::string& worker, const std::string& advertised) const;

  WorkerNodeOptions options_;
  std::unique_ptr<CoordinatorSession> session_;
  std::shared_ptr<StageRunner> stage_;
  ExecutorFingerprint fingerprint_;
  uint64_t incarnation_ = 0;
  std::map<std::string, uint64_t> rejections_before_;  // when the stage was assigned

  std::mutex mutex_;  // leaf: the end of Run
  std::condition_variable ended_;
  std::optional<absl::Status> result_;

  ThreadEventLoop worker_loop_, compute_loop_, bulk_loop_, averaging_loop_;  // last: their functions use what is above
};

}  // namespace stagecoach
