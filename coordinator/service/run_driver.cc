#include "coordinator/service/run_driver.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/log.h"
#include "coordinator/domain/stage_partition.h"
#include "coordinator/planning_files/run_model.h"
#include "coordinator/service/run_state_text.h"
#include "google/protobuf/util/json_util.h"

namespace stagecoach {
namespace {

// What was asked for cannot be done, however often it is tried.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
         absl::IsDataLoss(status);
}

}  // namespace

RunDriver::RunDriver(SubmitRequest request, RunMachine::Options limits, RunSurroundings surroundings)
    : request_(std::move(request)),
      name_(request_.spec().name().empty() ? "run" : request_.spec().name()),
      around_(std::move(surroundings)),
      limits_(limits),
      machine_(limits) {}

void RunDriver::Begin() {
  SaveState();
  around_.store->Post([self = shared_from_this()] {
    auto inputs = ReadRunInputs(self->request_);
    self->around_.loop->Post([self, inputs = std::move(inputs)]() mutable { self->OnInputs(std::move(inputs)); });
  });
}

void RunDriver::OnInputs(absl::StatusOr<RunInputs> inputs) {
  if (ended()) return;
  if (!inputs.ok()) {
    refused_ = IsRefusal(inputs.status());
    return Perform(machine_.OnFatal(around_.loop->Now(), inputs.status().message()));
  }
  inputs_ = std::make_unique<RunInputs>(*std::move(inputs));
  limits_.workers_wanted = request_.workers();
  limits_.clusters = std::max(1u, inputs_->spec.averaging().clusters());
  limits_.choose_clusters = inputs_->spec.averaging().choose_clusters();
  if (inputs_->earlier) {
    for (const ClusterRecord& row : inputs_->earlier->clusters()) {
      limits_.cluster_sizes.push_back(static_cast<size_t>(row.cuts_size()) + 1);
    }
  }
  if (const absl::Status status = CheckWorkers(); !status.ok()) {
    refused_ = true;
    return Perform(machine_.OnFatal(around_.loop->Now(), status.message()));
  }
  limits_.max_stages = MaxStages(AllowedCuts(inputs_->spec.model()));
  limits_.total_steps = inputs_->spec.schedule().steps();
  limits_.resumed = inputs_->checkpoint.has_value();
  limits_.replan = {inputs_->spec.replan().lost_worker() == REPLAN_MODE_ON, inputs_->spec.replan().most_per_hour()};
  machine_ = RunMachine(limits_);
  OnWorkersChanged();
}

absl::Status RunDriver::CheckWorkers() const {
  const uint32_t asked = request_.workers();
  if (asked == 0) return absl::OkStatus();
  if (limits_.choose_clusters) {
    if (asked <= RunMachine::kMostMeasuredTogether) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("averaging.choose_clusters: every pair of workers is measured, of at most ",
                     RunMachine::kMostMeasuredTogether, "; ", asked, " are asked for: name the number of clusters"));
  }
  const size_t stages = std::accumulate(limits_.cluster_sizes.begin(), limits_.cluster_sizes.end(), size_t{0});
  if (asked < stages) {
    return absl::FailedPreconditionError(absl::StrCat("the earlier run has ", stages, " stages in ", limits_.clusters,
                                                      " clusters, ", asked, " workers are asked for"));
  }
  if (asked >= limits_.clusters) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(limits_.clusters, " clusters need as many workers, ", asked, " are asked for"));
}

void RunDriver::OnWorkersChanged() {
  if (!inputs_ || machine_.phase() != RunPhase::kWaiting) return;
  ++revision_;
  const std::vector<std::string> free = around_.free_workers();
  Perform(machine_.OnFreeWorkers(around_.loop->Now(), free));
  const size_t wanted = request_.workers() == 0 ? free.size() : request_.workers();
  if (machine_.members().empty() || wanted <= machine_.members().size()) return;
  const std::string why =
      !limits_.cluster_sizes.empty() ? absl::StrCat("the earlier run has ", machine_.members().size(), " stages in ",
                                                    limits_.clusters, " clusters")
      : machine_.members().size() < size_t{limits_.max_stages} * limits_.clusters
          ? absl::StrCat("every pair is measured, of ", RunMachine::kMostMeasuredTogether, " workers at most")
          : absl::StrCat("the model can be cut into ", limits_.max_stages, " stages at most");
  inputs_->notes.push_back(absl::StrCat(why, ": the other workers stay free"));
}

void RunDriver::Perform(const RunEffects& effects) {
  ++revision_;
  for (const RunEffect& effect : effects) {
    if (const auto* probe = std::get_if<ProbeWorkerEffect>(&effect)) ProbeWorker(probe->worker);
    if (const auto* link = std::get_if<ProbeLinkEffect>(&effect)) ProbeLink(link->from, link->to);
    if (const auto* plan = std::get_if<MakePlanEffect>(&effect)) MakePlan(plan->workers);
    if (const auto* replan = std::get_if<ReplanEffect>(&effect)) BeginReplan(*replan);
    if (std::holds_alternative<AssignStagesEffect>(effect)) AssignStages();
    if (std::holds_alternative<StartStagesEffect>(effect)) StartStages();
    if (std::holds_alternative<RequestStopEffect>(effect)) SendStop(num_clusters() > 1, 0);
    if (const auto* end = std::get_if<EndAfterEffect>(&effect)) SendStop(false, end->step);
    if (const auto* release = std::get_if<ReleaseEffect>(&effect)) Release(release->reason);
    if (std::holds_alternative<EndedEffect>(effect)) {
      if (ledger_) ended_elapsed_ = earlier_elapsed_ + ledger_->ElapsedSeconds(around_.loop->Now());
      if (writer_) writer_->Detach();
      for (const auto& writer : cluster_writers_) writer->Detach();
      SaveState();
      around_.on_workers_free();
    }
  }
}

void RunDriver::ProbeWorker(const std::string& worker) {
  const WorkerDescription* description = around_.membership->Find(worker);
  if (description == nullptr) return Perform(machine_.OnWorkerLost(around_.loop->Now(), worker, "it is gone"));
  measured_.workers.push_back(*description);
  measured_.cluster_sizes = machine_.cluster_sizes();
  CoordinatorMessage message;
  *message.mutable_probe_request()->mutable_spec() = ProbeSpec(*inputs_);
  around_.send(worker, message);
}

void RunDriver::ProbeLink(const std::string& from, const std::string& to) {
  const WorkerDescription* peer = around_.membership->Find(to);
  if (peer == nullptr) return Perform(machine_.OnWorkerLost(around_.loop->Now(), to, "it is gone"));
  CoordinatorMessage message;
  message.mutable_link_request()->set_peer(to);
  message.mutable_link_request()->set_address(peer->address);
  around_.send(from, message);
}

// The epoch is journaled before any message carries it, so that no later life of the coordinator uses it again.
void RunDriver::MakePlan(const std::vector<std::string>& workers) {
  measured_.workers.clear();
  for (const std::string& worker : workers) {
    const WorkerDescription* description = around_.membership->Find(worker);
    if (description == nullptr) return OnWorkerLost(worker, "it is gone");
    measured_.workers.push_back(*description);
  }
  measured_.cluster_sizes = machine_.cluster_sizes();
  RunInputs known = *inputs_;
  if (built_) known.spec = built_->record.spec();
  const std::string why = replans_.empty() ? "" : replans_.back().reason();
  around_.store->Post([self = shared_from_this(), inputs = std::move(known), measured = measured_, why,
                       plans_before = replans_.size()]() mutable {
    absl::StatusOr<BuiltPlan> built;
    absl::StatusOr<uint64_t> epoch = self->around_.journal->NextEpoch();
    // Behind every write of the plan before: the newest checkpoint is complete or will never be.
    const absl::Status found = why.empty() ? absl::OkStatus() : TakeUpNewestCheckpoint(why, &inputs);
    if (!found.ok()) epoch = found;
    built = epoch.ok() ? BuildPlan(inputs, measured, *epoch) : absl::StatusOr<BuiltPlan>(epoch.status());
    if (built.ok()) {
      const absl::Status written = WriteRunRecord(built->record.spec().run_dir(), built->record);
      if (!written.ok()) built = written;
    }
    if (built.ok()) {
      const absl::Status rewound = self->around_.journal->Rewind(self->name_, built->first_step);
      if (!rewound.ok()) built = rewound;
    }
    self->around_.loop->Post([self, built = std::move(built), inputs = std::move(inputs), plans_before]() mutable {
      if (plans_before != self->replans_.size()) return;  // a further loss has asked for another one meanwhile
      *self->inputs_ = std::move(inputs);
      self->OnPlan(std::move(built));
    });
  });
}

void RunDriver::OnPlan(absl::StatusOr<BuiltPlan> built) {
  const MonoTime now = around_.loop->Now();
  if (machine_.phase() != RunPhase::kPlanning) return;
  if (!built.ok()) {
    refused_ = replans_.empty() && IsRefusal(built.status());
    return Perform(machine_.OnPlanFailed(now, built.status().message()));
  }
  built_ = std::make_unique<BuiltPlan>(*std::move(built));
  if (replans_.empty()) {
    life_first_step_ = built_->first_step;
  } else {
    NoteStartOfReplan();
  }
  std::vector<std::vector<std::string>> chosen;
  if (limits_.choose_clusters) chosen = OrderAsPlanned();
  if (inputs_->checkpoint) {
    checkpoint_step_ = inputs_->checkpoint->step();
    checkpoint_dir_ = CheckpointDir(built_->record.spec().run_dir(), checkpoint_step_);
    weight_hash_ = inputs_->checkpoint->weight_hash();
  }
  ledger_ = MakeLedger();
  if (RunRounds::Has(built_->record)) rounds_ = MakeRounds();
  assembly_ = std::make_unique<CheckpointAssembly>(built_->record.spec().model().layers() + 2,
                                                   static_cast<uint32_t>(num_clusters()));
  OpenWriters();
  SaveState();
  Perform(machine_.OnPlanned(now, built_->record.spec().schedule().steps(), chosen));
  if (limits_.choose_clusters) around_.on_workers_free();
}

void RunDriver::OpenWriters() {
  if (writer_) writer_->Detach();  // of the plan before
  for (const auto& writer : cluster_writers_) writer->Detach();
  cluster_writers_.clear();
  const auto writer_of = [this](const std::string& row) {
    // Weak: the writer is ours.
    return std::make_shared<JournalWriter>(
        around_.loop, around_.store, around_.journal, row, [weak = weak_from_this()](absl::Status status) {
          const auto self = weak.lock();
          if (self) self->Perform(self->machine_.OnFatal(self->around_.loop->Now(), status.message()));
        });
  };
  writer_ = writer_of(name_);
  for (size_t c = 0; num_clusters() > 1 && c < num_clusters(); ++c) {
    cluster_writers_.push_back(
        writer_of(absl::StrCat(name_, "/", built_->record.clusters(static_cast<int>(c)).name())));
  }
}

std::vector<std::vector<std::string>> RunDriver::OrderAsPlanned() {
  std::vector<std::vector<std::string>> clusters;
  std::vector<WorkerDescription> workers;
  for (const Plan& plan : built_->plans) {
    std::vector<std::string>& names = clusters.emplace_back();
    for (const StageAssignment& stage : plan.stages()) {
      names.push_back(stage.worker());
      workers.push_back(*std::find_if(measured_.workers.begin(), measured_.workers.end(),
                                      [&](const WorkerDescription& each) { return each.name == stage.worker(); }));
    }
  }
  measured_.workers = std::move(workers);
  return clusters;
}

std::unique_ptr<RunLedger> RunDriver::MakeLedger() const {
  const RunRecord& record = built_->record;
  std::vector<uint64_t> steps_per_round;
  for (const ClusterRecord& row : record.clusters()) steps_per_round.push_back(row.steps_per_round());
  std::vector<ClusterLedgerStart> starts(num_clusters());
  for (size_t c = 0; c < starts.size(); ++c) {
    if (starts.size() > 1) starts[c].steps = ClusterSteps(steps_per_round, static_cast<uint32_t>(c));
    if (!inputs_->checkpoint) continue;
    const CheckpointManifest& all = *inputs_->checkpoint;
    const bool own = starts.size() > 1 && all.clusters_size() == static_cast<int>(starts.size());
    const auto& losses = own ? all.clusters(static_cast<int>(c)).losses() : all.losses();
    const auto& skipped = own ? all.clusters(static_cast<int>(c)).skipped() : all.skipped();
    starts[c].earlier_losses.assign(losses.begin(), losses.end());
    starts[c].earlier_skipped.assign(skipped.begin(), skipped.end());
  }
  return std::make_unique<RunLedger>(built_->first_step, record.spec().schedule().microbatches(), std::move(starts));
}

const std::string& RunDriver::FirstOf(size_t cluster) const {
  size_t first = 0;
  for (size_t c = 0; c < cluster; ++c) first += machine_.cluster_sizes()[c];
  return machine_.members()[first];
}

void RunDriver::SendStop(bool hold, uint64_t after_step) {
  CoordinatorMessage message;
  message.mutable_stop_run()->set_epoch(built_->plans[0].epoch());
  message.mutable_stop_run()->set_hold(hold);
  message.mutable_stop_run()->set_after_step(after_step);
  for (size_t c = 0; c < num_clusters(); ++c) around_.send(FirstOf(c), message);
}

void RunDriver::AssignStages() {
  for (size_t c = 0; c < built_->plans.size(); ++c) {
    const Plan& plan = built_->plans[c];
    for (const StageAssignment& stage : plan.stages()) {
      CoordinatorMessage message;
      AssignStage* assign = message.mutable_assign_stage();
      *assign->mutable_record() = built_->record;
      *assign->mutable_plan() = plan;
      assign->set_cluster(static_cast<uint32_t>(c));
      assign->set_stage(stage.stage());
      assign->set_first_step(built_->first_step);
      assign->set_stop_after_step(built_->stop_after_step);
      if (inputs_->checkpoint) assign->set_checkpoint_dir(checkpoint_dir_);
      if (rounds_) {
        assign->mutable_cluster_plans()->Assign(built_->plans.begin(), built_->plans.end());
        assign->set_uplink_bytes_per_second(UplinkOf(stage.worker()));
      }
      worker_states_[stage.worker()] = "loading";
      speeds_.insert_or_assign(stage.worker(), SpeedWatch(stage.microbatch_seconds()));
      around_.send(stage.worker(), message);
    }
  }
}

void RunDriver::StartStages() {
  const RunSpec& spec = built_->record.spec();
  // The hashes of the basis and the anchors are known now: the record is complete.
  around_.store->Post([self = shared_from_this(), dir = spec.run_dir(), record = built_->record, epoch = epoch()] {
    const absl::Status status = WriteRunRecord(dir, record);
    self->around_.loop->Post([self, status, epoch] {
      if (self->ended() || self->epoch() != epoch || self->machine_.phase() < RunPhase::kRunning) return;
      if (!status.ok()) return self->Perform(self->machine_.OnFatal(self->around_.loop->Now(), status.message()));
      self->ledger_->Start(self->around_.loop->Now());
      CoordinatorMessage message;
      message.mutable_start_stage()->set_epoch(self->built_->plans[0].epoch());
      for (const std::string& worker : self->machine_.members()) self->worker_states_[worker] = "running";
      if (self->rounds_) self->rounds_->Start(self->around_.loop->Now());
      self->SendToMembers(message);
      // A stop that was asked for in the meantime found stages that had not started and ignored it.
      if (self->machine_.phase() != RunPhase::kStopping) return;
      self->Perform({RequestStopEffect{}});
    });
  });
}

void RunDriver::Release(const std::string& reason) {
  if (!built_) return;
  CoordinatorMessage message;
  message.mutable_release_stage()->set_epoch(built_->plans[0].epoch());
  message.mutable_release_stage()->set_reason(reason);
  for (const std::string& worker : machine_.members()) {
    worker_states_[worker] = "released";
    around_.send(worker, message);
  }
}

void RunDriver::SaveState() {
  JournalRun row;
  row.state = FormatSavedState(machine_.phase(), machine_.detail());
  if (built_) {
    row.epoch = built_->plans[0].epoch();
    (void)google::protobuf::util::MessageToJsonString(built_->record, &row.record);
  }
  // Losing this row costs a line of history only: the record is in the run's folder, epochs are counted apart.
  around_.store->Post([self = shared_from_this(), row] { (void)self->around_.journal->SaveRun(self->name_, row); });
}

void RunDriver::OnWorkerLost(const std::string& worker, absl::string_view reason) {
  if (machine_.IsMember(worker)) worker_states_[worker] = "lost";
  Perform(machine_.OnWorkerLost(around_.loop->Now(), worker, reason, around_.free_workers()));
}

// What belongs to the plan that ends goes; the ledger stays until the next one, for those who watch.
void RunDriver::BeginReplan(const ReplanEffect& replan) {
  const bool ran = replans_.empty() || replans_.back().replaced_epoch() != epoch();  // else the next plan was not made
  ReplanRow& row = replans_.emplace_back();
  row.set_replaced_epoch(epoch());
  row.set_from_step(checkpoint_step_);
  row.set_reason(replan.reason);
  row.set_lost_worker(replan.lost);
  if (ran) {
    row.set_recomputed_steps(ledger_->steps_done() - std::min(ledger_->steps_done(), checkpoint_step_));
    earlier_elapsed_ += ledger_->ElapsedSeconds(around_.loop->Now());
  }
  Log(LogLevel::kWarning, "coordinator", "planned-anew",
      {{"run", name_}, {"from_step", absl::StrCat(checkpoint_step_)}, {"reason", replan.reason}});
  Release(absl::StrCat("planned anew: ", replan.reason));
  limits_.choose_clusters = false;
  measured_.workers.clear();
  rounds_.reset();
  end_step_.reset();
  counters_.clear();
  speeds_.clear();
  watermarks_.clear();
  parameters_.clear();
  worker_states_.clear();
}

// Evaluations behind the checkpoint come again. It may be another one than expected: the newest does not verify, or one
// was being committed.
void RunDriver::NoteStartOfReplan() {
  ReplanRow& row = replans_.back();
  const uint64_t first_step = built_->first_step;
  const uint64_t done = row.from_step() + row.recomputed_steps();
  row.set_recomputed_steps(done - std::min(done, first_step));
  row.set_from_step(first_step);
  std::erase_if(evaluations_, [&](const EvaluationRow& evaluation) { return evaluation.after_step() > first_step; });
}

void RunDriver::OnTick() {
  if (ended()) return;
  const RunEffects effects = machine_.OnTick(around_.loop->Now());
  if (!effects.empty()) Perform(effects);
  if (rounds_ && !ended()) rounds_->OnTick(around_.loop->Now());
}

void RunDriver::Stop(absl::string_view reason) { Perform(machine_.OnStopRequested(around_.loop->Now(), reason)); }

}  // namespace stagecoach
