#include "coordinator/service/run_driver.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "coordinator/domain/stage_partition.h"
#include "google/protobuf/util/json_util.h"

namespace stagecoach {

RunDriver::RunDriver(SubmitRequest request, RunMachine::Options limits, RunSurroundings surroundings)
    : request_(std::move(request)),
      name_(request_.spec().name().empty() ? "run" : request_.spec().name()),
      around_(std::move(surroundings)),
      limits_(limits),
      machine_(limits) {}

void RunDriver::Begin() {
  around_.store->Post([self = shared_from_this()] {
    auto inputs = ReadRunInputs(self->request_);
    self->around_.loop->Post([self, inputs = std::move(inputs)]() mutable { self->OnInputs(std::move(inputs)); });
  });
}

void RunDriver::OnInputs(absl::StatusOr<RunInputs> inputs) {
  if (ended()) return;
  if (!inputs.ok()) return Perform(machine_.OnFatal(around_.loop->Now(), inputs.status().message()));
  inputs_ = std::make_unique<RunInputs>(*std::move(inputs));
  limits_.workers_wanted = request_.workers();
  limits_.max_stages = MaxStages(AllowedCuts(inputs_->spec.model()));
  limits_.total_steps = inputs_->spec.schedule().steps();
  machine_ = RunMachine(limits_);
  OnWorkersChanged();
}

void RunDriver::OnWorkersChanged() {
  if (!inputs_ || machine_.phase() != RunPhase::kWaiting) return;
  ++revision_;
  const std::vector<std::string> free = around_.free_workers();
  Perform(machine_.OnFreeWorkers(around_.loop->Now(), free));
  const size_t wanted = request_.workers() == 0 ? free.size() : request_.workers();
  if (machine_.members().empty() || wanted <= limits_.max_stages) return;
  inputs_->notes.push_back(
      absl::StrCat("the model can be cut into ", limits_.max_stages, " stages at most: the other workers stay free"));
}

void RunDriver::Perform(const RunEffects& effects) {
  ++revision_;
  for (const RunEffect& effect : effects) {
    if (const auto* probe = std::get_if<ProbeWorkerEffect>(&effect)) ProbeWorker(probe->worker);
    if (const auto* link = std::get_if<ProbeLinkEffect>(&effect)) ProbeLink(link->from, link->to);
    if (const auto* plan = std::get_if<MakePlanEffect>(&effect)) MakePlan(plan->workers);
    if (std::holds_alternative<AssignStagesEffect>(effect)) AssignStages();
    if (std::holds_alternative<StartStagesEffect>(effect)) StartStages();
    if (std::holds_alternative<RequestStopEffect>(effect)) {
      CoordinatorMessage message;
      message.mutable_stop_run()->set_epoch(built_->plan.epoch());
      around_.send(machine_.members()[0], message);
    }
    if (const auto* release = std::get_if<ReleaseEffect>(&effect)) Release(release->reason);
    if (std::holds_alternative<EndedEffect>(effect)) {
      if (ledger_) ended_elapsed_ = ledger_->ElapsedSeconds(around_.loop->Now());
      if (writer_) writer_->Detach();
      SaveState();
      around_.on_ended();
    }
  }
}

void RunDriver::ProbeWorker(const std::string& worker) {
  const WorkerDescription* description = around_.membership->Find(worker);
  if (description == nullptr) return Perform(machine_.OnWorkerLost(around_.loop->Now(), worker, "it is gone"));
  measured_.workers.push_back(*description);
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
void RunDriver::MakePlan(const std::vector<std::string>&) {
  around_.store->Post([self = shared_from_this(), inputs = *inputs_, measured = measured_] {
    absl::StatusOr<BuiltPlan> built;
    const auto epoch = self->around_.journal->NextEpoch();
    built = epoch.ok() ? BuildPlan(inputs, measured, *epoch) : absl::StatusOr<BuiltPlan>(epoch.status());
    if (built.ok()) {
      const absl::Status written = WriteRunRecord(built->record.spec().run_dir(), built->record);
      if (!written.ok()) built = written;
    }
    self->around_.loop->Post([self, built = std::move(built)]() mutable { self->OnPlan(std::move(built)); });
  });
}

void RunDriver::OnPlan(absl::StatusOr<BuiltPlan> built) {
  const MonoTime now = around_.loop->Now();
  if (machine_.phase() != RunPhase::kPlanning) return;
  if (!built.ok()) return Perform(machine_.OnPlanFailed(now, built.status().message()));
  built_ = std::make_unique<BuiltPlan>(*std::move(built));
  std::vector<double> losses;
  std::vector<uint64_t> skipped;
  if (inputs_->checkpoint) {
    losses.assign(inputs_->checkpoint->losses().begin(), inputs_->checkpoint->losses().end());
    skipped.assign(inputs_->checkpoint->skipped().begin(), inputs_->checkpoint->skipped().end());
    checkpoint_step_ = inputs_->checkpoint->step();
    checkpoint_dir_ = CheckpointDir(built_->record.spec().run_dir(), checkpoint_step_);
    weight_hash_ = inputs_->checkpoint->weight_hash();
  }
  ledger_ = std::make_unique<StepLedger>(built_->first_step, std::move(losses), std::move(skipped));
  assembly_ = std::make_unique<CheckpointAssembly>(built_->record.spec().model().layers() + 2);
  // Weak: the writer is ours.
  writer_ = std::make_shared<JournalWriter>(
      around_.loop, around_.store, around_.journal, name_, [weak = weak_from_this()](absl::Status status) {
        const auto self = weak.lock();
        if (self) self->Perform(self->machine_.OnFatal(self->around_.loop->Now(), status.message()));
      });
  SaveState();
  Perform(machine_.OnPlanned(now, built_->record.spec().schedule().steps()));
}

void RunDriver::AssignStages() {
  for (int stage = 0; stage < built_->plan.stages_size(); ++stage) {
    CoordinatorMessage message;
    AssignStage* assign = message.mutable_assign_stage();
    *assign->mutable_record() = built_->record;
    *assign->mutable_plan() = built_->plan;
    assign->set_stage(static_cast<uint32_t>(stage));
    assign->set_first_step(built_->first_step);
    assign->set_stop_after_step(built_->stop_after_step);
    if (inputs_->checkpoint) assign->set_checkpoint_dir(checkpoint_dir_);
    worker_states_[built_->plan.stages(stage).worker()] = "loading";
    around_.send(built_->plan.stages(stage).worker(), message);
  }
}

void RunDriver::StartStages() {
  const RunSpec& spec = built_->record.spec();
  // The hashes of the basis and the anchors are known now: the record is complete.
  around_.store->Post([self = shared_from_this(), dir = spec.run_dir(), record = built_->record] {
    const absl::Status status = WriteRunRecord(dir, record);
    self->around_.loop->Post([self, status] {
      if (self->ended()) return;
      if (!status.ok()) return self->Perform(self->machine_.OnFatal(self->around_.loop->Now(), status.message()));
      self->ledger_->Start(self->around_.loop->Now());
      CoordinatorMessage message;
      message.mutable_start_stage()->set_epoch(self->built_->plan.epoch());
      for (const std::string& worker : self->machine_.members()) {
        self->worker_states_[worker] = "running";
        self->around_.send(worker, message);
      }
      // A stop that was asked for in the meantime found stages that had not started and ignored it.
      if (self->machine_.phase() != RunPhase::kStopping) return;
      self->Perform({RequestStopEffect{}});
    });
  });
}

void RunDriver::Release(const std::string& reason) {
  if (!built_) return;
  CoordinatorMessage message;
  message.mutable_release_stage()->set_epoch(built_->plan.epoch());
  message.mutable_release_stage()->set_reason(reason);
  for (const std::string& worker : machine_.members()) {
    worker_states_[worker] = "released";
    around_.send(worker, message);
  }
}

void RunDriver::SaveState() {
  JournalRun row;
  row.state = absl::StrCat(static_cast<int>(machine_.phase()), " ", machine_.detail());
  if (built_) {
    row.epoch = built_->plan.epoch();
    (void)google::protobuf::util::MessageToJsonString(built_->record, &row.record);
  }
  // Losing this row costs a line of history only: the record is in the run's folder, epochs are counted apart.
  around_.store->Post([self = shared_from_this(), row] { (void)self->around_.journal->SaveRun(self->name_, row); });
}

void RunDriver::OnWorkerLost(const std::string& worker, absl::string_view reason) {
  if (machine_.IsMember(worker)) worker_states_[worker] = "lost";
  Perform(machine_.OnWorkerLost(around_.loop->Now(), worker, reason));
}

void RunDriver::OnTick() {
  if (ended()) return;
  const RunEffects effects = machine_.OnTick(around_.loop->Now());
  if (!effects.empty()) Perform(effects);
}

void RunDriver::Stop(absl::string_view reason) { Perform(machine_.OnStopRequested(around_.loop->Now(), reason)); }

}  // namespace stagecoach
