// Workers in this process that a scripted coordinator gives stages to: the real worker nodes, stage runners and links,
// with fake executors and control streams in memory.
//
// Threading: the thread of the test calls; the workers run on loops of their own. Errors: gtest failures.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protos/checkpoint.pb.h"
#include "protos/coordinator.pb.h"
#include "worker/compute/executor_factory.h"
#include "worker/control/control_stream.h"
#include "worker/link/peer_link.h"
#include "worker/main/worker_node.h"

namespace stagecoach::testing {

// A complete record of a small run for fake stages: `stages` stages of a dense model, fp32 wire, M microbatches.
RunRecord FakeRunRecord(uint32_t stages, uint32_t microbatches, uint32_t j, uint64_t steps, const std::string& run_dir);

// What a worker has sent, and a way to send to it.
class ScriptedControl final : public ControlConnector {
 public:
  explicit ScriptedControl(EventLoop* loop);
  std::unique_ptr<ControlStream> Open(ControlCallbacks callbacks) override;

  void Send(CoordinatorMessage message);
  void Break(absl::Status status);
  // The first message at or after position *from that `wanted` accepts; *from is moved behind it. False at the
  // deadline.
  bool WaitFor(const std::function<bool(const WorkerMessage&)>& wanted, size_t* from, WorkerMessage* found,
               std::chrono::seconds deadline = std::chrono::seconds(20));
  std::vector<WorkerMessage> Received() const;

 private:
  struct Inbox;
  class Stream;
  EventLoop* const loop_;
  std::shared_ptr<Inbox> inbox_;
};

struct LinkEnd {
  std::unique_ptr<LinkFactory> factory;
  std::string address;
};
// Makes the link factory of a worker.
using LinkMaker = std::function<LinkEnd(EventLoop*, std::shared_ptr<HostBufferPool>)>;

struct LifeResult {
  std::map<uint64_t, double> losses, clips, square_sums;
  std::vector<std::pair<uint64_t, double>> evaluations;
  std::vector<CheckpointPart> parts;
  std::vector<WorkerCounters> counters;  // by stage
  std::vector<StageFailed> failures;
  uint64_t steps = 0;  // as StageFinished says
};

class ScriptedFleet {
 public:
  ScriptedFleet(uint32_t workers, const FakeCosts& costs_per_unit, const LinkMaker& make_links,
                SessionLimits limits = {});
  ~ScriptedFleet();

  struct Life {
    RunRecord record;
    std::vector<uint32_t> windows;  // one per stage
    uint64_t first_step = 0, stop_after = 0;
    std::string checkpoint_dir = "";
  };
  // Assigns, starts, and waits for the end of all stages or for the first failure; then releases them.
  LifeResult Run(const Life& life);
  // The parts of Run.
  void Assign(const Life& life);
  void StartStages();
  LifeResult Finish();

  ScriptedControl& control(uint32_t worker) { return *members_[worker]->control; }
  void StopWorker(uint32_t worker);        // as SIGTERM would
  absl::Status ResultOf(uint32_t worker);  // after StopWorker or a given up session
  uint64_t epoch() const { return epoch_; }

 private:
  struct Member {
    WorkerNode node;
    std::shared_ptr<HostBufferPool> pool;
    LinkEnd links;
    std::unique_ptr<ScriptedControl> control;
    std::string name;
    std::thread thread;
    absl::Status result;
    size_t position = 0;  // in the control's log
  };
  std::vector<std::unique_ptr<Member>> members_;
  uint64_t epoch_ = 0;
  uint32_t num_stages_ = 0;
};

// Builds a commit-ready manifest of the parts of `step`.
CheckpointManifest ManifestOf(const RunRecord& record, uint64_t step, const std::vector<CheckpointPart>& parts);

}  // namespace stagecoach::testing
