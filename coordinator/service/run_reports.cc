// What workers report about their stages: the second half of RunDriver.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/log.h"
#include "coordinator/service/run_driver.h"
#include "coordinator/service/run_state_text.h"
#include "coordinator/service/wire_checks.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxRowsPerStatus = 4096;  // about 60 bytes each: stays well below the message limit

// Of one cluster.
double TokensPerStep(const RunRecord& record) {
  const ScheduleSpec& schedule = record.spec().schedule();
  return static_cast<double>(schedule.microbatches()) * schedule.sequences() * schedule.sequence_tokens();
}

}  // namespace

uint64_t RunDriver::EpochOf(const WorkerMessage& message) const {
  switch (message.message_case()) {
    case WorkerMessage::kStageReady:
      return message.stage_ready().epoch();
    case WorkerMessage::kStepReport:
      return message.step_report().epoch();
    case WorkerMessage::kEvaluationReport:
      return message.evaluation_report().epoch();
    case WorkerMessage::kCheckpointPart:
      return message.checkpoint_part().epoch();
    case WorkerMessage::kStageFinished:
      return message.stage_finished().epoch();
    case WorkerMessage::kStageFailed:
      return message.stage_failed().epoch();
    case WorkerMessage::kStopPoint:
      return message.stop_point().epoch();
    case WorkerMessage::kHeartbeat:
      return message.heartbeat().epoch();
    case WorkerMessage::kRoundReady:
      return message.round_ready().epoch();
    case WorkerMessage::kRoundProposal:
      return message.round_proposal().epoch();
    default:
      return 0;
  }
}

void RunDriver::OnWorkerMessage(const std::string& worker, const WorkerMessage& message, size_t wire_bytes) {
  if (ended()) return;
  received_bytes_ += wire_bytes;
  tensor_bytes_ += BytesFieldsSize(message);
  const MonoTime now = around_.loop->Now();
  if (message.has_probe_result()) {
    measured_.probes[worker] = message.probe_result();
    return Perform(machine_.OnWorkerProbed(now, worker, message.probe_result().error()));
  }
  if (message.has_link_result()) {
    const LinkResult& link = message.link_result();
    measured_.links[{worker, link.peer()}] = link;
    return Perform(machine_.OnLinkProbed(now, worker, link.peer(), link.error()));
  }
  // Of an earlier plan: late messages are normal.
  if (machine_.phase() < RunPhase::kLoading || !built_ || EpochOf(message) != epoch()) return;
  switch (message.message_case()) {
    case WorkerMessage::kStageReady:
      return OnStageReady(worker, message.stage_ready());
    case WorkerMessage::kStepReport:
      return OnStepReport(worker, message.step_report());
    case WorkerMessage::kEvaluationReport:
      return OnEvaluation(worker, message.evaluation_report());
    case WorkerMessage::kCheckpointPart:
      return OnCheckpointPart(worker, message.checkpoint_part());
    case WorkerMessage::kStageFinished:
      return OnStageFinished(worker, message.stage_finished());
    case WorkerMessage::kStopPoint:
      return Perform(machine_.OnStopPoint(now, worker, message.stop_point().step()));
    case WorkerMessage::kStageFailed:
      worker_states_[worker] = "failed";
      return Perform(
          machine_.OnStageFailed(now, worker, message.stage_failed().error(), message.stage_failed().peer()));
    case WorkerMessage::kHeartbeat:
      return OnHeartbeat(worker, message.heartbeat());
    case WorkerMessage::kRoundReady:
    case WorkerMessage::kRoundProposal:
      return OnRoundMessage(worker, message);
    default:
      return;
  }
}

void RunDriver::OnHeartbeat(const std::string& worker, const Heartbeat& heartbeat) {
  if (worker_states_[worker] != "finished") counters_[worker] = heartbeat.counters();
  WatchSpeed(worker);
  // Pieces of a round move too: a stage may wait for them longer than for anything else.
  const std::tuple<uint64_t, uint64_t, uint64_t> mark{heartbeat.next_forward(), heartbeat.next_backward(),
                                                      heartbeat.counters().averaging_bytes()};
  if (watermarks_[worker] == mark) return;
  watermarks_[worker] = mark;
  ++revision_;
  machine_.OnProgress(around_.loop->Now());
}

void RunDriver::WatchSpeed(const std::string& worker) {
  const auto watch = speeds_.find(worker);
  const WorkerCounters& counters = counters_[worker];
  if (watch == speeds_.end() || !watch->second.OnTotals(counters.microbatches(), counters.training_seconds())) return;
  ++revision_;
  Log(LogLevel::kInfo, "coordinator", watch->second.slow() ? "worker-slow" : "worker-as-planned",
      {{"run", name_},
       {"worker", worker},
       {"microbatch_ms", absl::StrFormat("%.1f", watch->second.seconds().value() * 1e3)},
       {"planned_ms", absl::StrFormat("%.1f", watch->second.planned_seconds() * 1e3)}});
}

void RunDriver::OnStageReady(const std::string& worker, const StageReady& ready) {
  const MonoTime now = around_.loop->Now();
  RunRecord& record = built_->record;
  // The first stage that is ready of a new run sets what all others, and every later life, must reproduce.
  for (auto [value, recorded, what] :
       {std::make_tuple(&ready.basis_sha256(), record.mutable_basis_sha256(), "basis"),
        std::make_tuple(&ready.anchor_sha256(), record.mutable_anchor_sha256(), "anchors")}) {
    if (recorded->empty()) *recorded = *value;
    if (*recorded == *value) continue;
    return Perform(
        machine_.OnFatal(now, absl::StrCat("worker ", worker, " makes other ", what, " from the seed (",
                                           value->substr(0, 12), ", the run has ", recorded->substr(0, 12),
                                           "): its processor or library computes differently; leave it out")));
  }
  parameters_[worker] = ready.parameters();
  worker_states_[worker] = "ready";
  Perform(machine_.OnStageReady(now, worker));
}

bool RunDriver::IsLastStage(const std::string& worker) const {
  const RunMachine::Place place = machine_.PlaceOf(worker);
  return place.stage + 1 == machine_.cluster_sizes()[place.cluster];
}

void RunDriver::OnStageFinished(const std::string& worker, const StageFinishedReport& report) {
  const MonoTime now = around_.loop->Now();
  counters_[worker] = report.counters();
  WatchSpeed(worker);
  worker_states_[worker] = "finished";
  ledger_->OnConsumed(worker, machine_.PlaceOf(worker).cluster, report.steps(),
                      DataTally(report.microbatches(), report.data_digest()));
  if (const absl::Status status = ledger_->CheckData(); !status.ok()) {
    return Perform(machine_.OnFatal(now, status.message()));
  }
  end_step_ = report.steps();
  if (EndedWithOneSetOfWeights()) Perform(machine_.OnStageFinished(now, worker, report.steps()));
}

void RunDriver::OnStepReport(const std::string& worker, const StepReport& report) {
  const MonoTime now = around_.loop->Now();
  absl::Status status;
  const RunMachine::Place place = machine_.PlaceOf(worker);
  const auto& own = ledger_->cluster(place.cluster).completed();
  const size_t done_before = ledger_->completed().size(), own_before = own.size();
  if (report.has_loss()) {
    status = IsLastStage(worker) ? ledger_->OnLoss(now, place.cluster, report.step(), report.loss())
                                 : absl::InvalidArgumentError("a loss comes from the last stage only");
  }
  if (status.ok() && report.has_scalar()) {
    status = place.stage == 0 ? ledger_->OnScalar(now, place.cluster, report.step(),
                                                  {report.clip(), report.square_sum(), report.skip()})
                              : absl::InvalidArgumentError("a clip scalar comes from stage 0 only");
  }
  if (!status.ok()) {
    return Perform(machine_.OnFatal(now, absl::StrCat("worker ", worker, ": ", status.message())));
  }
  machine_.OnProgress(now);
  JournalWriter& writer = cluster_writers_.empty() ? *writer_ : *cluster_writers_[place.cluster];
  for (size_t i = own_before; i < own.size(); ++i) {
    const CompletedStep& step = own[i];
    writer.Add(JournalStep{step.step, step.loss, step.scalar.clip, step.scalar.square_sum, step.scalar.skip});
  }
  if (own.size() == own_before) return;
  ++revision_;
  if (own.back().scalar.skip) {
    const std::string verdict = ledger_->SkipVerdict();
    if (!verdict.empty()) Perform(machine_.OnTooManySkips(now, verdict));
  }
  if (ledger_->completed().size() > done_before) CommitReadyCheckpoints();
}

void RunDriver::OnEvaluation(const std::string& worker, const EvaluationReport& report) {
  if (evaluations_.size() > ledger_->steps_done() + 2) return;  // at most one a step, and one before the first
  const size_t cluster = machine_.PlaceOf(worker).cluster;
  if (!cluster_writers_.empty()) cluster_writers_[cluster]->Add(JournalEvaluation{report.after_step(), report.loss()});
  const std::optional<double> loss = ledger_->OnEvaluation(cluster, report.after_step(), report.loss());
  if (!loss) return;
  EvaluationRow row;
  row.set_after_step(report.after_step());
  row.set_loss(*loss);
  evaluations_.push_back(row);
  if (cluster_writers_.empty()) writer_->Add(JournalEvaluation{report.after_step(), *loss});
  ++revision_;
}

void RunDriver::OnCheckpointPart(const std::string& worker, const CheckpointPart& part) {
  const MonoTime now = around_.loop->Now();
  machine_.OnProgress(now);
  const auto cluster = static_cast<uint32_t>(machine_.PlaceOf(worker).cluster);
  const absl::Status status = assembly_->OnPart({part.step(), cluster, part.unit(), part.file(), part.sha256(),
                                                 part.weights_sha256(), part.bytes(), part.error()});
  if (absl::IsAborted(status)) return GiveUpCheckpoint(part.step(), absl::StrCat(worker, ": ", status.message()));
  if (!status.ok()) return Perform(machine_.OnFatal(now, status.message()));
  CommitReadyCheckpoints();
}

// A full disk is no reason to lose the run: the older checkpoints stay, and a later one may fit.
void RunDriver::GiveUpCheckpoint(uint64_t step, absl::string_view error) {
  ++failed_checkpoints_;
  checkpoint_error_ = std::string(error);
  Log(LogLevel::kWarning, "coordinator", "checkpoint-given-up",
      {{"run", name_}, {"step", std::to_string(step)}, {"reason", checkpoint_error_}});
  // Stages may still write into the folder of this step; that of the failure before is free to go, and must: what is
  // left of failed checkpoints would fill the disk for good.
  if (failed_checkpoint_step_ && *failed_checkpoint_step_ < step) {
    around_.store->Post([dir = built_->record.spec().run_dir(), failed = *failed_checkpoint_step_] {
      (void)DiscardIncomplete(dir, failed);
    });
  }
  failed_checkpoint_step_ = step;
  Perform(machine_.OnCheckpointFailed(around_.loop->Now(), step, error));
}

CheckpointManifest RunDriver::ManifestOf(const std::vector<CheckpointPartFact>& parts) const {
  const auto clusters = static_cast<uint32_t>(num_clusters());
  CheckpointManifest manifest;
  manifest.set_format(1);
  manifest.set_step(parts.front().step);
  *manifest.mutable_record() = built_->record;
  for (const CheckpointPartFact& part : parts) {
    const std::string folder = ClusterFolder(part.cluster, clusters);
    CheckpointFile* file = manifest.add_files();
    file->set_cluster(part.cluster);
    file->set_unit(part.unit);
    file->set_name(folder.empty() ? part.file : absl::StrCat(folder, "/", part.file));
    file->set_sha256(part.sha256);
    file->set_bytes(part.bytes);
    file->set_weights_sha256(part.weights_sha256);
  }
  for (const double loss : ledger_->LossesUpTo(manifest.step())) manifest.add_losses(loss);
  for (const uint64_t step : ledger_->SkippedUpTo(manifest.step())) manifest.add_skipped(step);
  for (size_t c = 0; clusters > 1 && c < clusters; ++c) {
    ClusterHistory* history = manifest.add_clusters();
    for (const double loss : ledger_->cluster(c).LossesUpTo(manifest.step())) history->add_losses(loss);
    for (const uint64_t step : ledger_->cluster(c).SkippedUpTo(manifest.step())) history->add_skipped(step);
  }
  return manifest;
}

void RunDriver::CommitReadyCheckpoints() {
  while (auto parts = assembly_->TakeComplete(ledger_->steps_done())) {
    around_.store->Post([self = shared_from_this(), manifest = ManifestOf(*parts)] {
      const RunSpec& spec = manifest.record().spec();
      absl::Status status = CommitCheckpoint(spec.run_dir(), manifest);
      // Old ones go only after the new one is safe. Failing to delete is no reason to stop.
      if (status.ok()) (void)PruneCheckpoints(spec.run_dir(), spec.checkpoint().keep());
      self->around_.loop->Post([self, status, manifest] { self->OnCommitted(status, manifest); });
    });
  }
}

void RunDriver::OnCommitted(const absl::Status& status, const CheckpointManifest& manifest) {
  const MonoTime now = around_.loop->Now();
  const uint64_t step = manifest.step();
  if (!status.ok()) return GiveUpCheckpoint(step, absl::StrCat("checkpoint of step ", step, ": ", status.message()));
  checkpoint_step_ = step;
  checkpoint_dir_ = CheckpointDir(built_->record.spec().run_dir(), step);
  weight_hash_ = WeightHash(manifest);
  cluster_hashes_.clear();
  for (size_t c = 0; num_clusters() > 1 && c < num_clusters(); ++c) {
    cluster_hashes_.push_back(ClusterWeightHash(manifest, static_cast<uint32_t>(c)));
  }
  writer_->Add(JournalCheckpoint{step, weight_hash_});
  // The steps of every cluster are known up to here: what it trained on can be compared with what it was dealt.
  if (const absl::Status data = ledger_->CheckData(); !data.ok()) return Perform(machine_.OnFatal(now, data.message()));
  if (EndedWithOneSetOfWeights()) Perform(machine_.OnCheckpointCommitted(now, step));
}

WorkerRow RunDriver::RowOf(size_t member) const {
  const std::string& worker = machine_.members()[member];
  const RunMachine::Place place = machine_.PlaceOf(worker);
  WorkerRow row;
  row.set_name(worker);
  row.set_cluster(static_cast<uint32_t>(place.cluster));
  row.set_stage(static_cast<uint32_t>(place.stage));
  row.set_assigned(built_ != nullptr && machine_.phase() >= RunPhase::kLoading);
  const auto measured = std::find_if(measured_.workers.begin(), measured_.workers.end(),
                                     [&](const WorkerDescription& each) { return each.name == worker; });
  if (measured != measured_.workers.end()) {
    row.set_address(measured->address);
    row.set_device(measured->device);
  }
  if (row.assigned()) {
    const StageAssignment& stage = built_->plans[place.cluster].stages(static_cast<int>(place.stage));
    row.set_first_unit(stage.first_unit());
    row.set_end_unit(stage.end_unit());
  }
  const auto state = worker_states_.find(worker);
  row.set_state(around_.membership->IsSuspect(worker) ? "suspect"
                : state == worker_states_.end()       ? "free"
                                                      : state->second);
  const auto parameters = parameters_.find(worker);
  if (parameters != parameters_.end()) row.set_parameters(parameters->second);
  const auto counters = counters_.find(worker);
  if (counters != counters_.end()) *row.mutable_counters() = counters->second;
  const auto speed = speeds_.find(worker);
  if (speed != speeds_.end()) {
    row.set_microbatch_seconds(speed->second.seconds().value());
    row.set_planned_microbatch_seconds(speed->second.planned_seconds());
    row.set_slow(speed->second.slow());
  }
  return row;
}

ClusterStatus RunDriver::StatusOfCluster(size_t cluster) const {
  ClusterStatus status;
  status.set_name(built_->plans[cluster].cluster());
  *status.mutable_plan() = built_->plans[cluster];
  if (cluster < cluster_hashes_.size()) status.set_weight_hash(cluster_hashes_[cluster]);
  if (!ledger_) return status;
  const StepLedger& ledger = ledger_->cluster(cluster);
  status.set_steps_done(ledger.steps_done());
  status.set_skipped_steps(ledger.num_skipped());
  status.set_tokens_per_second(ledger.StepsPerSecond() * TokensPerStep(built_->record));
  if (!ledger.completed().empty()) status.set_loss(ledger.completed().back().loss);
  return status;
}

RunStatus RunDriver::Status(WatchCursor* cursor) const {
  RunStatus status;
  status.set_run(name_);
  status.set_state(ToProto(machine_.phase()));
  status.set_detail(!inputs_ && !ended() ? "reads the data" : machine_.detail());
  status.set_checkpoint_step(checkpoint_step_);
  status.set_checkpoint_dir(checkpoint_dir_);
  status.set_weight_hash(weight_hash_);
  status.set_refused(refused_);
  status.set_failed_checkpoints(failed_checkpoints_);
  status.set_checkpoint_error(checkpoint_error_);
  status.set_coordinator_tensor_bytes(tensor_bytes_);
  status.set_coordinator_received_bytes(received_bytes_);
  if (built_) {
    *status.mutable_record() = built_->record;
    *status.mutable_plan() = built_->plans[0];
    for (size_t c = 0; num_clusters() > 1 && c < num_clusters(); ++c) *status.add_clusters() = StatusOfCluster(c);
  }
  if (rounds_) {
    status.set_rounds(rounds_->committed());
    status.set_round_seconds(rounds_->mean_seconds());
    status.set_round_wait_seconds(rounds_->mean_wait_seconds());
  }
  for (size_t member = 0; member < machine_.members().size(); ++member) *status.add_workers() = RowOf(member);
  status.mutable_replans()->Assign(replans_.begin(), replans_.end());
  cursor->revision = revision_;
  if (!ledger_) return status;
  if (cursor->epoch != 0 && cursor->epoch != epoch()) cursor->steps = cursor->evaluations = 0;
  cursor->epoch = epoch();
  status.set_first_step(life_first_step_);
  status.set_skipped_steps(ledger_->num_skipped());
  status.set_tokens_per_second(ledger_->StepsPerSecond() * TokensPerStep(built_->record));
  status.set_elapsed_seconds(ended() ? ended_elapsed_
                                     : earlier_elapsed_ + ledger_->ElapsedSeconds(around_.loop->Now()));
  const auto& completed = ledger_->completed();
  const size_t end = std::min(completed.size(), cursor->steps + kMaxRowsPerStatus);
  status.set_steps_done(ledger_->first_step() + end);
  for (; cursor->steps < end; ++cursor->steps) {
    const CompletedStep& step = completed[cursor->steps];
    StepRow* row = status.add_steps();
    row->set_step(step.step);
    row->set_loss(step.loss);
    row->set_clip(step.scalar.clip);
    row->set_norm(std::sqrt(step.scalar.square_sum));
    row->set_skip(step.scalar.skip);
    row->set_seconds(step.seconds);
  }
  const size_t evaluations_end = std::min(evaluations_.size(), cursor->evaluations + kMaxRowsPerStatus);
  for (; cursor->evaluations < evaluations_end; ++cursor->evaluations) {
    *status.add_evaluations() = evaluations_[cursor->evaluations];
  }
  return status;
}

bool RunDriver::AllSeen(const WatchCursor& cursor) const {
  return cursor.revision == revision_ && (!ledger_ || cursor.steps == ledger_->completed().size()) &&
         cursor.evaluations == evaluations_.size();
}

}  // namespace stagecoach
