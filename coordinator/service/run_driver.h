// One run of one or several clusters: carries out what its RunMachine decides, and translates what workers report into
// events.
//
// Threading: confined to the coordinator loop; file work is posted to the store loop and comes back.
// Ownership: shared, because work on the store loop may outlive the fleet's interest in the run.
// Errors: everything ends in the run's state FAILED with a detail for people.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/event_loop.h"
#include "coordinator/domain/checkpoint_assembly.h"
#include "coordinator/domain/membership.h"
#include "coordinator/domain/run_ledger.h"
#include "coordinator/domain/run_machine.h"
#include "coordinator/domain/speed_watch.h"
#include "coordinator/service/journal_writer.h"
#include "coordinator/service/plan_builder.h"
#include "coordinator/service/run_inputs.h"
#include "coordinator/service/run_rounds.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

// What a run needs from the fleet.
struct RunSurroundings {
  EventLoop* loop = nullptr;
  EventLoop* store = nullptr;
  RunJournal* journal = nullptr;
  const Membership* membership = nullptr;
  std::function<void(const std::string& worker, const CoordinatorMessage& message)> send;
  std::function<std::vector<std::string>()> free_workers;
  std::function<void()> on_workers_free;  // the run has ended, or its plan leaves some out
};

// How far a watcher has read.
struct WatchCursor {
  size_t steps = 0, evaluations = 0;
  uint64_t revision = 0;
  uint64_t epoch = 0;  // of the plan whose steps are counted; a further plan's are sent from its first step on
};

class RunDriver : public std::enable_shared_from_this<RunDriver> {
 public:
  RunDriver(SubmitRequest request, RunMachine::Options limits, RunSurroundings surroundings);

  void Begin();  // once, after construction
  void OnWorkersChanged();
  void OnWorkerMessage(const std::string& worker, const WorkerMessage& message, size_t wire_bytes);
  void OnWorkerLost(const std::string& worker, absl::string_view reason);
  void OnTick();
  void Stop(absl::string_view reason);

  const std::string& name() const { return name_; }
  const std::string& run_dir() const { return request_.spec().run_dir(); }
  bool ended() const { return machine_.ended(); }
  bool IsMember(const std::string& worker) const { return machine_.IsMember(worker); }
  // Grows with every change that a watcher would want to see.
  uint64_t revision() const { return revision_; }
  // The status with the rows after the cursor, at most a message full; moves the cursor.
  RunStatus Status(WatchCursor* cursor) const;
  // A status may be complete: nothing is left behind the cursor.
  bool AllSeen(const WatchCursor& cursor) const;

 private:
  void OnInputs(absl::StatusOr<RunInputs> inputs);
  absl::Status CheckWorkers() const;  // as many as the clusters need, and no more than can be measured
  size_t num_clusters() const { return built_ ? built_->plans.size() : machine_.cluster_sizes().size(); }
  // Measured workers in the order of the plans' stages; their names, a row for each cluster.
  std::vector<std::vector<std::string>> OrderAsPlanned();
  // First worker of the cluster: its stage 0.
  const std::string& FirstOf(size_t cluster) const;
  void SendStop(bool hold, uint64_t after_step);
  std::unique_ptr<RunLedger> MakeLedger() const;
  std::unique_ptr<RunRounds> MakeRounds();
  void JournalRoundOf(uint64_t round, uint64_t step, const std::string& hash);
  void SendToMembers(const CoordinatorMessage& message);
  double UplinkOf(const std::string& worker) const;
  void Perform(const RunEffects& effects);
  void ProbeWorker(const std::string& worker);
  void ProbeLink(const std::string& from, const std::string& to);
  void BeginReplan(const ReplanEffect& replan);
  void NoteStartOfReplan();
  void MakePlan(const std::vector<std::string>& workers);
  void OnPlan(absl::StatusOr<BuiltPlan> built);
  void OpenWriters();
  uint64_t epoch() const { return built_ ? built_->plans[0].epoch() : 0; }
  void AssignStages();
  void StartStages();
  void Release(const std::string& reason);
  void SaveState();

  void OnStageReady(const std::string& worker, const StageReady& ready);
  void OnStepReport(const std::string& worker, const StepReport& report);
  void OnEvaluation(const std::string& worker, const EvaluationReport& report);
  void OnCheckpointPart(const std::string& worker, const CheckpointPart& part);
  void OnStageFinished(const std::string& worker, const StageFinishedReport& report);
  void OnCommitted(const absl::Status& status, const CheckpointManifest& manifest);
  void OnRoundMessage(const std::string& worker, const WorkerMessage& message);
  bool EndedWithOneSetOfWeights();
  void GiveUpCheckpoint(uint64_t step, absl::string_view error);
  void CommitReadyCheckpoints();
  void OnHeartbeat(const std::string& worker, const Heartbeat& heartbeat);
  void WatchSpeed(const std::string& worker);
  bool IsLastStage(const std::string& worker) const;
  uint64_t EpochOf(const WorkerMessage& message) const;
  CheckpointManifest ManifestOf(const std::vector<CheckpointPartFact>& parts) const;
  WorkerRow RowOf(size_t member) const;
  ClusterStatus StatusOfCluster(size_t cluster) const;

  const SubmitRequest request_;
  const std::string name_;
  const RunSurroundings around_;
  RunMachine::Options limits_;
  RunMachine machine_;
  uint64_t revision_ = 1;

  // Known once they were read, measured, planned.
  std::unique_ptr<RunInputs> inputs_;
  Measurements measured_;
  std::unique_ptr<BuiltPlan> built_;

  std::vector<ReplanRow> replans_;
  uint64_t life_first_step_ = 0;  // of the first plan
  double earlier_elapsed_ = 0;    // of the plans before

  std::unique_ptr<RunLedger> ledger_;
  std::unique_ptr<RunRounds> rounds_;  // if the clusters average
  std::optional<uint64_t> end_step_;   // after which stages have finished
  std::unique_ptr<CheckpointAssembly> assembly_;
  std::shared_ptr<JournalWriter> writer_;
  std::vector<std::shared_ptr<JournalWriter>> cluster_writers_;  // with several clusters: the steps of each
  std::vector<EvaluationRow> evaluations_;
  uint64_t checkpoint_step_ = 0;
  std::string checkpoint_dir_, weight_hash_;
  bool refused_ = false;  // by the inputs or the plan
  uint64_t failed_checkpoints_ = 0;
  std::string checkpoint_error_;                    // of the newest one that was given up
  std::optional<uint64_t> failed_checkpoint_step_;  // its folder still takes space
  std::vector<std::string> cluster_hashes_;         // with several clusters
  std::map<std::string, WorkerCounters> counters_;
  std::map<std::string, SpeedWatch> speeds_;
  std::map<std::string, uint64_t> parameters_;
  std::map<std::string, std::tuple<uint64_t, uint64_t, uint64_t>> watermarks_;
  std::map<std::string, std::string> worker_states_;
  uint64_t received_bytes_ = 0, tensor_bytes_ = 0;
  double ended_elapsed_ = 0;
};

}  // namespace stagecoach
