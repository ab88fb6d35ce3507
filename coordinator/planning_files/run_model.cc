#include "coordinator/planning_files/run_model.h"

#include "absl/strings/str_cat.h"
#include "common/averaging/averaging_codec.h"
#include "common/codec/number_codec.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr double kFrameHeaderBytes = 64;  // of the protobuf message around a payload, and of HTTP/2
// An update reads gradient, weight and two moments and writes the last three, in fp32.
constexpr double kUpdateBytes = 28;

// Backward costs twice the forward; what is recomputed costs it once more. The last stage, which holds tail and head,
// recomputes nothing.
double BackwardFactor(const RunSpec& spec, UnitKind kind) {
  const bool last_stage = kind == UnitKind::kTailBlock || kind == UnitKind::kHead;
  return spec.schedule().recompute() == RECOMPUTE_OFF || last_stage ? 2 : 3;
}

KindWork WorkOf(const RunSpec& spec, const ModelShape& shape, UnitKind kind) {
  const ScheduleSpec& schedule = spec.schedule();
  const double tokens = static_cast<double>(schedule.sequences()) * schedule.sequence_tokens();
  KindWork work;
  work.forward_flops = tokens * ForwardFlopsPerToken(shape, kind, schedule.sequence_tokens());
  work.backward_flops = BackwardFactor(spec, kind) * work.forward_flops;
  if (spec.optimizer().kind() == OPTIMIZER_KIND_MUON) work.update_flops = MuonFlops(shape, kind);
  work.update_bytes = kUpdateBytes * static_cast<double>(UnitParameters(shape, kind));
  return work;
}

absl::Status CheckSchedule(const ScheduleSpec& schedule) {
  switch (schedule.kind()) {
    case SCHEDULE_KIND_FD_2BW:
    case SCHEDULE_KIND_2BW:
    case SCHEDULE_KIND_SYNC:
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          "schedule.kind: is a baseline with windows of its own, which are not planned; allowed: fd-2bw, sync, 2bw");
  }
}

}  // namespace

ModelShape ShapeOf(const ModelSpec& spec) {
  ModelShape shape;
  shape.gpt2 = spec.architecture() == ARCHITECTURE_GPT2;
  shape.pre_norm = spec.norm() == NORM_PRE;
  shape.width = spec.width();
  shape.layers = spec.layers();
  shape.heads = spec.heads();
  shape.kv_heads = spec.kv_heads();
  shape.feedforward = spec.feedforward();
  shape.vocabulary = spec.vocabulary();
  shape.max_tokens = spec.max_tokens();
  if (spec.compression() == COMPRESSION_SUBSPACE) {
    shape.rank = spec.rank();
    shape.tail_layers = spec.tail_layers();
  }
  return shape;
}

std::vector<bool> AllowedCuts(const ModelSpec& spec) {
  const ModelShape shape = ShapeOf(spec);
  std::vector<bool> allowed(shape.num_units(), false);
  for (uint32_t unit = 0; unit < shape.num_units(); ++unit) allowed[unit] = shape.CutAllowed(unit);
  return allowed;
}

double FrameBytes(const RunSpec& spec) {
  const uint32_t rows = spec.schedule().sequences() * spec.schedule().sequence_tokens();
  const auto columns = static_cast<uint32_t>(ShapeOf(spec.model()).boundary_columns());
  return kFrameHeaderBytes +
         static_cast<double>(EncodedBytes(static_cast<WireFormat>(spec.wire().format()), rows, columns));
}

uint32_t OptimizerBytes(const RunSpec& spec, uint32_t unit) {
  const auto kind = spec.optimizer().kind();
  const bool in_block = unit > 0 && unit <= spec.model().layers();
  return kind == OPTIMIZER_KIND_SGD || (kind == OPTIMIZER_KIND_MUON && in_block) ? 4 : 8;
}

uint32_t RoundBytes(const AveragingSpec& averaging) {
  if (averaging.wire() == AVERAGING_WIRE_UNSPECIFIED) return 0;
  return 20 + (averaging.outer_momentum() > 0 ? 8 : 0) + (averaging.wire() == AVERAGING_WIRE_INT4 ? 8 : 0);
}

absl::StatusOr<RunModel> RunModelOf(const RunSpec& written, const RunModelOptions& options) {
  RunSpec spec = written;
  // Averaging as it is if the plan has several clusters, whatever the spec says of their number.
  if (options.averages) spec.mutable_averaging()->set_clusters(2);
  FillDefaults(&spec, 0);
  RETURN_IF_ERROR(CheckSchedule(spec.schedule()));
  const bool synchronous = spec.schedule().kind() == SCHEDULE_KIND_SYNC || spec.schedule().j() == 0;
  FillPlannedDefaults(&spec, spec.schedule().microbatches(), 0, !synchronous);  // the optimizer, if none is named
  const ScheduleSpec& schedule = spec.schedule();
  if (spec.model().vocabulary() == 0) {
    return absl::InvalidArgumentError("model.vocabulary: is missing; without the data it must be given (bytes: 256)");
  }
  const ModelShape shape = ShapeOf(spec.model());
  RunModel model;
  PlanModel& plan = model.plan;
  plan.kinds = {"embedding", "block", "tail block", "head"};
  model.kind_used.assign(kNumUnitKinds, false);
  for (uint32_t kind = 0; kind < kNumUnitKinds; ++kind) {
    model.work.push_back(WorkOf(spec, shape, static_cast<UnitKind>(kind)));
  }
  for (uint32_t unit = 0; unit < shape.num_units(); ++unit) {
    const UnitKind kind = shape.KindOf(unit);
    model.kind_used[static_cast<uint32_t>(kind)] = true;
    plan.units.push_back({static_cast<uint32_t>(kind), UnitParameters(shape, kind),
                          UnitActivationBytes(shape, kind, schedule.sequences(), schedule.sequence_tokens()),
                          OptimizerBytes(spec, unit)});
  }
  plan.cut_allowed = AllowedCuts(spec.model());
  plan.frame_bytes = FrameBytes(spec);
  plan.tokens_per_microbatch = static_cast<double>(schedule.sequences()) * schedule.sequence_tokens();
  plan.microbatches = schedule.microbatches();
  plan.synchronous = synchronous;
  plan.memory.lag = plan.synchronous ? 0 : 1;
  plan.memory.error_feedback = !plan.synchronous;
  plan.memory.recompute = schedule.recompute() != RECOMPUTE_OFF;
  plan.memory.frame_bytes = static_cast<uint64_t>(plan.frame_bytes);
  if (options.averages) {
    const AveragingSpec& averaging = spec.averaging();
    plan.steps_per_round = static_cast<double>(averaging.every_steps());
    plan.averaging_bytes = AveragingBits(static_cast<AveragingCodec>(averaging.wire())) / 8;
    if (options.rounds_in_limit) plan.memory.round_bytes = RoundBytes(averaging);
  }
  return model;
}

}  // namespace stagecoach
