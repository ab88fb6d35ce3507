#include "coordinator/service/plan_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/run_spec/run_spec_record.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/status_macros.h"
#include "coordinator/domain/pipeline_prediction.h"
#include "coordinator/domain/schedule_choice.h"
#include "coordinator/domain/stage_memory.h"
#include "coordinator/domain/stage_partition.h"
#include "coordinator/planning_files/run_model.h"
#include "coordinator/service/cluster_choice.h"
#include "google/protobuf/util/message_differencer.h"

#ifndef STAGECOACH_VERSION
#error "the build defines STAGECOACH_VERSION"
#endif

namespace stagecoach {
namespace {

constexpr uint32_t kProbeMicrobatches = 8;   // the share of an update in a microbatch's time before M is known
constexpr uint32_t kMaxMicrobatches = 4096;  // of the run spec

std::string ClusterName(size_t cluster) { return absl::StrCat("cluster-", cluster); }

uint32_t NumUnits(const ModelSpec& model) { return model.layers() + 2; }

const UnitTiming& TimingOf(const ModelSpec& model, const ProbeResult& probe, uint32_t unit) {
  switch (ShapeOf(model).KindOf(unit)) {
    case UnitKind::kEmbedding:
      return probe.embedding();
    case UnitKind::kTailBlock:
      return probe.tail_block();
    case UnitKind::kHead:
      return probe.head();
    default:
      return probe.block();
  }
}

// What rounds keep lies on the host: only workers whose limit is the host's count it.
uint32_t RoundBytesOn(const WorkerDescription& worker, const AveragingSpec& averaging) {
  return worker.device == "cpu" ? RoundBytes(averaging) : 0;
}

PartitionProblem MakeProblem(const RunSpec& spec, const Measurements& measured,
                             const std::map<std::string, uint64_t>& tenants, const StageMemoryRule& memory) {
  PartitionProblem problem;
  problem.cut_allowed = AllowedCuts(spec.model());
  for (const WorkerDescription& description : measured.workers) {
    const ProbeResult& probe = measured.probes.at(description.name);
    PartitionWorker& worker = problem.workers.emplace_back();
    worker.name = description.name;
    worker.memory_limit_bytes = StageMemoryLimit(description, tenants);
    uint64_t largest = 0;
    for (uint32_t unit = 0; unit < NumUnits(spec.model()); ++unit) {
      const UnitTiming& timing = TimingOf(spec.model(), probe, unit);
      worker.unit_seconds.push_back(timing.forward_seconds() + timing.backward_seconds() +
                                    timing.update_seconds() / kProbeMicrobatches);
      StageMemoryRule own = memory;
      own.optimizer_bytes = OptimizerBytes(spec, unit);
      own.round_bytes = RoundBytesOn(description, spec.averaging());
      worker.unit_bytes.push_back(UnitBytes(own, timing.parameters(), timing.activation_bytes()));
      largest = std::max<uint64_t>(largest, timing.activation_bytes());
    }
    worker.fixed_bytes = FixedBytes(memory, largest);
  }
  return problem;
}

// What workers compete for: the cores of a host on cpu, the device itself on a GPU, nothing when the executor is a
// fake.
StageCost EmptyStage(const WorkerDescription& worker, uint32_t threads) {
  StageCost stage{worker.name, worker.host, worker.cores, 0, 0, 0};
  if (worker.device.empty() || worker.device == "cpu") return stage;
  stage.host = absl::StrCat(worker.host, "/", worker.device == "fake" ? worker.name : worker.device);
  stage.cores = threads;  // one stage computes at a time: as if it used all of the device
  return stage;
}

PipelineCosts MakeCosts(const RunSpec& spec, const Measurements& measured, const std::vector<uint32_t>& cuts) {
  PipelineCosts costs;
  costs.threads = spec.threads();
  for (size_t i = 0; i < measured.workers.size(); ++i) {
    const WorkerDescription& worker = measured.workers[i];
    StageCost stage = EmptyStage(worker, costs.threads);
    const uint32_t first = i == 0 ? 0 : cuts[i - 1], end = i < cuts.size() ? cuts[i] : NumUnits(spec.model());
    for (uint32_t unit = first; unit < end; ++unit) {
      const UnitTiming& timing = TimingOf(spec.model(), measured.probes.at(worker.name), unit);
      stage.forward_seconds += timing.forward_seconds();
      stage.backward_seconds += timing.backward_seconds();
      stage.update_seconds += timing.update_seconds();
    }
    costs.stages.push_back(stage);
    if (i + 1 == measured.workers.size()) break;
    const LinkResult& down = measured.links.at({worker.name, measured.workers[i + 1].name});
    const LinkResult& up = measured.links.at({measured.workers[i + 1].name, worker.name});
    costs.links.push_back(
        {std::max(down.rtt_seconds(), up.rtt_seconds()), down.bytes_per_second(), up.bytes_per_second()});
  }
  costs.frame_bytes = FrameBytes(spec);
  return costs;
}

ScheduleName KindOf(const RunSpec& spec) {
  switch (spec.schedule().kind()) {
    case SCHEDULE_KIND_SYNC:
      return ScheduleName::kSync;
    case SCHEDULE_KIND_SYNC_1F1B:
      return ScheduleName::kSync1f1b;
    case SCHEDULE_KIND_GPIPE:
      return ScheduleName::kGpipe;
    case SCHEDULE_KIND_2BW:
      return ScheduleName::k2bw;
    case SCHEDULE_KIND_PIPEDREAM:
      return ScheduleName::kPipedream;
    default:
      return ScheduleName::kFd2bw;
  }
}

// The numbers of the run as the user's spec and the speed give them.
absl::StatusOr<ScheduleChoice> NewSchedule(const RunSpec& spec, const PipelineSpeed& speed) {
  ScheduleWish wish;
  wish.kind = KindOf(spec);
  wish.steps = spec.schedule().steps();
  wish.microbatches = spec.schedule().microbatches();
  wish.j = spec.schedule().j();
  wish.sync_warmup_steps = spec.schedule().sync_warmup_steps();
  return ChooseSchedule(wish, speed);
}

// M, J and delays belong to the run and are kept; only the windows follow the speed.
ScheduleChoice KeptSchedule(const RunRecord& earlier, const PipelineSpeed& speed) {
  ScheduleChoice choice;
  choice.microbatches = earlier.spec().schedule().microbatches();
  for (const JEntry& entry : earlier.j_table()) {
    choice.j_table.push_back({entry.from_step(), entry.j()});
    choice.j = std::max(choice.j, entry.j());
  }
  choice.stage_delays.assign(earlier.stage_delays().begin(), earlier.stage_delays().end());
  choice.windows = speed.windows;
  const ScheduleName kind = KindOf(earlier.spec());
  const uint32_t num_stages = static_cast<uint32_t>(choice.windows.size());
  for (uint32_t i = 0; i < num_stages; ++i) {
    if (kind == ScheduleName::kSync1f1b) choice.windows[i] = num_stages - i;
    if (kind == ScheduleName::kGpipe) choice.windows[i] = choice.microbatches;
    if (kind == ScheduleName::kPipedream) choice.windows[i] = choice.stage_delays[i] + 1;
  }
  choice.delayed = choice.j > 0 || !choice.stage_delays.empty();
  choice.synchronous_efficiency =
      SynchronousEfficiency(choice.microbatches, speed.microbatch_seconds, speed.loop_seconds, speed.update_seconds);
  choice.microbatches_per_second = MicrobatchesPerSecond(choice.microbatches, !choice.delayed, choice.windows, speed);
  choice.explanation.push_back(absl::StrFormat("M %u and J %u are those of the earlier run; bottleneck: %s",
                                               choice.microbatches, choice.j, speed.bottleneck));
  return choice;
}

// One cluster of the run while it is planned.
struct ClusterDraft {
  Measurements measured;
  Partition partition;
  PipelineCosts costs;
  PipelineSpeed speed;
  ScheduleChoice schedule;
};

std::vector<ClusterDraft> SplitClusters(const Measurements& measured) {
  std::vector<size_t> sizes = measured.cluster_sizes;
  if (sizes.empty()) sizes.push_back(measured.workers.size());
  std::vector<ClusterDraft> drafts;
  auto next = measured.workers.begin();
  for (const size_t size : sizes) {
    Measurements& own = drafts.emplace_back().measured;
    own.workers.assign(next, next + static_cast<ptrdiff_t>(size));
    own.probes = measured.probes;
    own.links = measured.links;
    next += static_cast<ptrdiff_t>(size);
  }
  return drafts;
}

// The longest pipeline decides M and J for all; windows are each cluster's own.
absl::Status NewSchedules(const RunSpec& spec, std::vector<ClusterDraft>* drafts) {
  RunSpec common = spec;
  const auto choose_all = [&]() -> absl::Status {
    for (ClusterDraft& draft : *drafts) {
      ASSIGN_OR_RETURN(draft.schedule, NewSchedule(common, draft.speed));
    }
    return absl::OkStatus();
  };
  if (drafts->size() > 1 && common.schedule().microbatches() == 0) {
    uint32_t longest = 1;
    for (const ClusterDraft& draft : *drafts) longest = std::max(longest, draft.speed.windows[0]);
    common.mutable_schedule()->set_microbatches(std::min(2 * longest, kMaxMicrobatches));
  }
  RETURN_IF_ERROR(choose_all());
  if (drafts->size() == 1 || KindOf(spec) != ScheduleName::kFd2bw) return absl::OkStatus();
  uint32_t j = 0;
  for (const ClusterDraft& draft : *drafts) j = std::max(j, draft.schedule.j);
  common.mutable_schedule()->set_j(j);
  return choose_all();
}

// With several clusters the cuts are arithmetic too: what is averaged with whom follows from them.
std::vector<uint32_t> EarlierCuts(const RunRecord& earlier, size_t cluster) {
  if (earlier.clusters().empty()) return {earlier.cuts().begin(), earlier.cuts().end()};
  const ClusterRecord& row = earlier.clusters(static_cast<int>(cluster));
  return {row.cuts().begin(), row.cuts().end()};
}

absl::StatusOr<Partition> ChooseCuts(const RunInputs& inputs, const PartitionProblem& problem, size_t cluster,
                                     std::vector<std::string>* notes) {
  if (!inputs.earlier) return PartitionStages(problem);
  const std::vector<uint32_t> cuts = EarlierCuts(*inputs.earlier, cluster);
  const bool same_count = cuts.size() + 1 == problem.workers.size();
  // Delays are fixed for each stage, and a quantised wire rounds where the cuts are: there the cuts are arithmetic.
  // A run that is planned anew says in its record which cuts each step had.
  const bool resumable = inputs.spec.wire().format() == WIRE_FORMAT_FP32 && inputs.earlier->clusters().empty();
  const bool recorded = !inputs.replan_reason.empty() && inputs.spec.optimizer().clip() != CLIP_STAGE;
  const bool movable = inputs.checkpoint && inputs.earlier->stage_delays().empty() && (resumable || recorded);
  if (!same_count && !movable) {
    return absl::FailedPreconditionError(
        absl::StrCat("the earlier run has ", cuts.size() + 1, " stages, there are ", problem.workers.size(), " workers",
                     inputs.earlier->clusters().empty() ? "" : absl::StrCat(" in cluster ", cluster),
                     "; use as many workers as stages",
                     inputs.checkpoint && inputs.earlier->clusters().empty()
                         ? " (another number is only possible with wire.format: fp32)"
                         : ""));
  }
  if (same_count) {
    auto kept = EvaluateCuts(problem, cuts);
    if (kept.ok() || !movable) return kept;
    notes->push_back(absl::StrCat("the earlier cuts do not fit: ", kept.status().message()));
  }
  return PartitionStages(problem);
}

// Cuts, speed and schedule of every cluster if stages need as much memory as `memory` says.
absl::Status DraftWithin(const RunInputs& inputs, const std::map<std::string, uint64_t>& tenants,
                         const StageMemoryRule& memory, std::vector<ClusterDraft>* drafts,
                         std::vector<std::string>* notes) {
  for (size_t c = 0; c < drafts->size(); ++c) {
    ClusterDraft& draft = (*drafts)[c];
    const PartitionProblem problem = MakeProblem(inputs.spec, draft.measured, tenants, memory);
    ASSIGN_OR_RETURN(draft.partition, ChooseCuts(inputs, problem, c, notes));
    draft.costs = MakeCosts(inputs.spec, draft.measured, draft.partition.cuts);
  }
  for (ClusterDraft& draft : *drafts) {
    for (const ClusterDraft& other : *drafts) {
      if (&other == &draft) continue;
      draft.costs.neighbours.insert(draft.costs.neighbours.end(), other.costs.stages.begin(), other.costs.stages.end());
    }
    draft.speed = PredictSpeed(draft.costs);
  }
  if (!inputs.earlier) return NewSchedules(inputs.spec, drafts);
  for (ClusterDraft& draft : *drafts) {
    draft.schedule = KeptSchedule(*inputs.earlier, draft.speed);
    draft.schedule.updates_per_step = inputs.updates_per_step;
  }
  return absl::OkStatus();
}

StageMemoryRule MemoryOf(const std::vector<ClusterDraft>& drafts, StageMemoryRule rule) {
  for (const ClusterDraft& draft : drafts) {
    const ScheduleChoice& schedule = draft.schedule;
    rule.lag = std::max(rule.lag, VersionRule(schedule.microbatches, schedule.j_table).MaxLag());
    for (const uint32_t delay : schedule.stage_delays) rule.lag = std::max(rule.lag, delay);
    for (const uint32_t window : schedule.windows) rule.window = std::max(rule.window, window);
  }
  return rule;
}

// Cuts need the memory of the schedule, which follows from the cuts: assume little, and draft again with what the
// schedule turned out to need. Needs only grow; both are bounded (lag by 4, windows by what PredictSpeed allows).
absl::Status DraftPlans(const RunInputs& inputs, const Measurements& measured, std::vector<ClusterDraft>* drafts,
                        std::vector<std::string>* notes) {
  const std::map<std::string, uint64_t> tenants = TenantsOfMemory(measured);
  const auto kind = KindOf(inputs.spec);
  const bool synchronous = kind == ScheduleName::kSync || kind == ScheduleName::kSync1f1b ||
                           kind == ScheduleName::kGpipe || inputs.spec.schedule().j() == 0;
  StageMemoryRule memory;
  memory.lag = synchronous ? 0 : 1;
  memory.error_feedback = !synchronous;
  memory.recompute = inputs.spec.schedule().recompute() != RECOMPUTE_OFF;
  memory.frame_bytes = static_cast<uint64_t>(FrameBytes(inputs.spec));
  while (true) {
    std::vector<ClusterDraft> attempt = *drafts;
    std::vector<std::string> attempt_notes = *notes;
    RETURN_IF_ERROR(DraftWithin(inputs, tenants, memory, &attempt, &attempt_notes));
    const StageMemoryRule needed = MemoryOf(attempt, memory);
    if (Covers(memory, needed)) {
      *drafts = std::move(attempt);
      *notes = std::move(attempt_notes);
      return absl::OkStatus();
    }
    memory = needed;
  }
}

// Cuts and codecs: of the run if it has one cluster, else a row for each.
void FillCuts(const RunInputs& inputs, const std::vector<ClusterDraft>& drafts, RunRecord* record) {
  record->clear_codecs();
  record->clear_clusters();
  if (drafts.size() == 1) {
    const std::vector<uint32_t>& cuts = drafts[0].partition.cuts;
    record->mutable_cuts()->Assign(cuts.begin(), cuts.end());
    for (size_t i = 0; i < cuts.size(); ++i) record->add_codecs(inputs.spec.wire().format());
    return;
  }
  record->clear_cuts();
  for (size_t c = 0; c < drafts.size(); ++c) {
    const std::vector<uint32_t>& cuts = drafts[c].partition.cuts;
    ClusterRecord* row = record->add_clusters();
    row->set_name(ClusterName(c));
    row->mutable_cuts()->Assign(cuts.begin(), cuts.end());
    for (size_t i = 0; i < cuts.size(); ++i) row->add_codecs(inputs.spec.wire().format());
    row->set_steps_per_round(inputs.spec.averaging().every_steps());
  }
}

// Which cuts the steps up to the checkpoint had, if `record` has others now.
void KeepEarlierPlan(const RunInputs& inputs, RunRecord* record) {
  EarlierPlan before, now;
  for (auto [from, to] : {std::make_pair(&*inputs.earlier, &before), std::make_pair(&std::as_const(*record), &now)}) {
    *to->mutable_cuts() = from->cuts();
    *to->mutable_codecs() = from->codecs();
    *to->mutable_clusters() = from->clusters();
  }
  if (google::protobuf::util::MessageDifferencer::Equals(before, now)) return;
  before.set_end_step(inputs.checkpoint->step());
  before.set_reason(inputs.replan_reason);
  *record->add_earlier_plans() = std::move(before);
}

void FillRecord(const RunInputs& inputs, const std::vector<ClusterDraft>& drafts, RunRecord* record) {
  const Measurements& measured = drafts[0].measured;
  const ScheduleChoice& schedule = drafts[0].schedule;
  if (inputs.earlier) {
    *record = *inputs.earlier;
    *record->mutable_spec() = inputs.spec;
  } else {
    RunSpec* spec = record->mutable_spec();
    *spec = inputs.spec;
    const uint64_t scale = schedule.updates_per_step;
    ScaleSteps(scale, spec);
    record->set_updates_per_step(scale);
    FillPlannedDefaults(spec, schedule.microbatches, schedule.j, schedule.delayed);
    for (const JTableEntry& entry : schedule.j_table) {
      JEntry* row = record->add_j_table();
      row->set_from_step(entry.from_step);
      row->set_j(entry.j);
    }
    record->mutable_stage_delays()->Assign(schedule.stage_delays.begin(), schedule.stage_delays.end());
    record->set_error_feedback(spec->optimizer().error_feedback());
    record->set_stagecoach_version(STAGECOACH_VERSION);
    record->set_torch_version(measured.workers[0].torch_version);
    record->set_cpu_capability(measured.workers[0].cpu_capability);
  }
  FillCuts(inputs, drafts, record);
  if (!inputs.replan_reason.empty()) KeepEarlierPlan(inputs, record);
  record->mutable_shards()->Assign(inputs.shards.begin(), inputs.shards.end());
  record->set_data_tokens(inputs.data_tokens);
  record->set_training_windows(inputs.training_windows);
  record->set_evaluation_windows(inputs.evaluation_windows);
  record->set_bigram_loss(inputs.bigram_loss);
}

void FillPlan(const RunInputs& inputs, const ClusterDraft& draft, size_t cluster, uint64_t epoch, Plan* plan) {
  const auto& [measured, partition, costs, speed, schedule] = draft;
  plan->set_run(inputs.spec.name());
  plan->set_cluster(ClusterName(cluster));
  plan->set_epoch(epoch);
  for (size_t i = 0; i < measured.workers.size(); ++i) {
    const WorkerDescription& worker = measured.workers[i];
    StageAssignment* stage = plan->add_stages();
    stage->set_stage(static_cast<uint32_t>(i));
    stage->set_first_unit(i == 0 ? 0 : partition.cuts[i - 1]);
    stage->set_end_unit(i < partition.cuts.size() ? partition.cuts[i] : NumUnits(inputs.spec.model()));
    stage->set_worker(worker.name);
    stage->set_incarnation(worker.incarnation);
    stage->set_address(worker.address);
    stage->set_window(schedule.windows[i]);
    stage->set_microbatch_seconds(speed.stage_seconds[i] + costs.stages[i].update_seconds / schedule.microbatches);
    stage->set_memory_bytes(partition.stage_bytes[i]);
    plan->add_explanation(absl::StrFormat("stage %d: units %u..%u on %s, %.1f ms a microbatch, %.0f MiB",
                                          static_cast<int>(i), stage->first_unit(), stage->end_unit() - 1, worker.name,
                                          partition.stage_seconds[i] * 1e3,
                                          static_cast<double>(partition.stage_bytes[i]) / (1 << 20)));
  }
}

void Predict(const RunSpec& spec, const PipelineCosts& costs, const PipelineSpeed& speed,
             const ScheduleChoice& schedule, Plan* plan) {
  const double tokens = static_cast<double>(spec.schedule().sequences()) * spec.schedule().sequence_tokens();
  const PipelineSpeed unlinked = PredictComputeBound(costs);
  Prediction* prediction = plan->mutable_prediction();
  prediction->set_microbatch_seconds(speed.microbatch_seconds);
  prediction->set_loop_seconds(speed.loop_seconds);
  prediction->set_update_seconds(speed.update_seconds);
  prediction->set_tokens_per_second(schedule.microbatches_per_second * tokens);
  prediction->set_compute_bound_tokens_per_second(
      tokens * MicrobatchesPerSecond(schedule.microbatches, !schedule.delayed, schedule.windows, unlinked));
  prediction->set_window(schedule.windows[0]);
  prediction->set_synchronous_efficiency(schedule.synchronous_efficiency);
  prediction->set_bottleneck(speed.bottleneck);
  for (const std::string& line : schedule.explanation) plan->add_explanation(line);
  plan->add_explanation(absl::StrFormat("predicted %.0f tokens/s, without links %.0f", prediction->tokens_per_second(),
                                        prediction->compute_bound_tokens_per_second()));
}

void NoteDifferentMachines(const Measurements& measured, const RunRecord& record, Plan* plan) {
  for (const WorkerDescription& worker : measured.workers) {
    if (worker.cpu_capability == record.cpu_capability() && worker.torch_version == record.torch_version()) continue;
    plan->add_explanation(absl::StrCat("worker ", worker.name, " computes with ", worker.cpu_capability, ", libtorch ",
                                       worker.torch_version, ", the run with ", record.cpu_capability(), ", libtorch ",
                                       record.torch_version(), ": same semantics, not the same bits"));
  }
}

absl::StatusOr<DivisionSpeed> SpeedOfDivision(const RunInputs& inputs, const Measurements& division) {
  std::vector<ClusterDraft> drafts = SplitClusters(division);
  std::vector<std::string> notes;
  RETURN_IF_ERROR(DraftPlans(inputs, division, &drafts, &notes));
  DivisionSpeed speed;
  for (const ClusterDraft& draft : drafts) {
    speed.microbatches_per_second.push_back(draft.schedule.microbatches_per_second);
    speed.loop_seconds = std::max(speed.loop_seconds, draft.speed.loop_seconds);
  }
  return speed;
}

}  // namespace

RunSpec ProbeSpec(const RunInputs& inputs) {
  RunSpec spec = inputs.spec;
  const auto kind = KindOf(spec);
  const bool delayed = kind == ScheduleName::kFd2bw || kind == ScheduleName::k2bw || kind == ScheduleName::kPipedream;
  const uint32_t m = spec.schedule().microbatches() > 0 ? spec.schedule().microbatches() : kProbeMicrobatches;
  FillPlannedDefaults(&spec, m, 0, delayed && spec.schedule().j() != 0);
  return spec;
}

absl::StatusOr<BuiltPlan> BuildPlan(const RunInputs& inputs, const Measurements& measured, uint64_t epoch) {
  if (inputs.spec.averaging().choose_clusters()) {
    ASSIGN_OR_RETURN(ClusterChoice choice, ChooseClusters(inputs, measured, SpeedOfDivision));
    choice.inputs.notes.insert(choice.inputs.notes.end(), choice.explanation.begin(), choice.explanation.end());
    return BuildPlan(choice.inputs, choice.division, epoch);
  }
  BuiltPlan built;
  std::vector<std::string> notes = inputs.notes;
  std::vector<ClusterDraft> drafts = SplitClusters(measured);
  if (inputs.earlier && std::max(1, inputs.earlier->clusters_size()) != static_cast<int>(drafts.size())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the earlier run has ", std::max(1, inputs.earlier->clusters_size()), " clusters, this one ", drafts.size()));
  }
  RETURN_IF_ERROR(DraftPlans(inputs, measured, &drafts, &notes));
  FillRecord(inputs, drafts, &built.record);
  for (size_t c = 0; c < drafts.size(); ++c) {
    Plan& plan = built.plans.emplace_back();
    FillPlan(inputs, drafts[c], c, epoch, &plan);
    Predict(inputs.spec, drafts[c].costs, drafts[c].speed, drafts[c].schedule, &plan);
    if (c == 0) {
      for (const std::string& note : notes) plan.add_explanation(note);
    }
    NoteDifferentMachines(drafts[c].measured, built.record, &plan);
  }
  built.first_step = inputs.checkpoint ? inputs.checkpoint->step() : 0;
  const uint64_t total = built.record.spec().schedule().steps();
  built.stop_after_step =
      inputs.stop_after == 0 ? total : std::min(total, inputs.stop_after * drafts[0].schedule.updates_per_step);
  if (built.first_step >= built.stop_after_step) {
    return absl::FailedPreconditionError(absl::StrCat("nothing to do: the checkpoint is of step ", built.first_step,
                                                      ", the run ends after step ", built.stop_after_step));
  }
  return built;
}

}  // namespace stagecoach
