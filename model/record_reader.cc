#include "model/record_reader.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr double kNoLimit = 1e30;

absl::Status BadField(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("run record: ", field, " ", problem, "; start the run again from its spec, or repair the record"));
}

absl::Status CheckRange(absl::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return BadField(field, absl::StrCat("must be ", low, "..", high, ", got ", value));
}

struct RealRange {
  absl::string_view field;
  double value, low;
  bool low_allowed;
  double below;
};

absl::Status CheckReals(absl::Span<const RealRange> ranges) {
  for (const RealRange& range : ranges) {
    const bool above = range.low_allowed ? range.value >= range.low : range.value > range.low;
    if (std::isfinite(range.value) && above && range.value < range.below) continue;
    return BadField(range.field, absl::StrCat("must be ", range.low_allowed ? "at least " : "above ", range.low,
                                              range.below < kNoLimit ? absl::StrCat(" and below ", range.below) : "",
                                              ", got ", range.value));
  }
  return absl::OkStatus();
}

// Values of a proto enum beside the C++ value; anything else is refused with the field's name.
template <typename Code, typename Value>
absl::StatusOr<Value> Translate(absl::string_view field, Code code,
                                std::initializer_list<std::pair<Code, Value>> table) {
  for (const auto& [known, value] : table) {
    if (known == code) return value;
  }
  return BadField(field, absl::StrCat("is missing or unknown, value ", static_cast<int>(code)));
}

absl::StatusOr<WireFormat> ReadWireFormat(absl::string_view field, int code) {
  return Translate<int, WireFormat>(field, code,
                                    {{WIRE_FORMAT_FP32, WireFormat::kFp32},
                                     {WIRE_FORMAT_BF16, WireFormat::kBf16},
                                     {WIRE_FORMAT_INT8, WireFormat::kInt8}});
}

absl::Status ReadModelKinds(const ModelSpec& spec, ModelConfig* model) {
  ASSIGN_OR_RETURN(model->architecture,
                   (Translate<ArchitectureCode, Architecture>(
                       "spec.model.architecture", spec.architecture(),
                       {{ARCHITECTURE_LLAMA, Architecture::kLlama}, {ARCHITECTURE_GPT2, Architecture::kGpt2}})));
  ASSIGN_OR_RETURN(model->norm, (Translate<Norm, NormPlacement>(
                                    "spec.model.norm", spec.norm(),
                                    {{NORM_PRE, NormPlacement::kPre}, {NORM_REORDERED, NormPlacement::kReordered}})));
  ASSIGN_OR_RETURN(model->compression,
                   (Translate<CompressionCode, Compression>(
                       "spec.model.compression", spec.compression(),
                       {{COMPRESSION_NONE, Compression::kNone}, {COMPRESSION_SUBSPACE, Compression::kSubspace}})));
  ASSIGN_OR_RETURN(model->compute,
                   (Translate<ComputeTypeCode, ComputeType>(
                       "spec.model.compute", spec.compute(),
                       {{COMPUTE_TYPE_FP32, ComputeType::kFp32}, {COMPUTE_TYPE_BF16, ComputeType::kBf16}})));
  return absl::OkStatus();
}

absl::Status ReadModel(const ModelSpec& spec, ModelConfig* model) {
  RETURN_IF_ERROR(ReadModelKinds(spec, model));
  RETURN_IF_ERROR(CheckRange("spec.model.width", spec.width(), 8, 65536));
  RETURN_IF_ERROR(CheckRange("spec.model.layers", spec.layers(), 1, 1024));
  RETURN_IF_ERROR(CheckRange("spec.model.heads", spec.heads(), 1, spec.width()));
  RETURN_IF_ERROR(CheckRange("spec.model.kv_heads", spec.kv_heads(), 1, spec.heads()));
  RETURN_IF_ERROR(CheckRange("spec.model.feedforward", spec.feedforward(), 1, 1u << 20));
  RETURN_IF_ERROR(CheckRange("spec.model.vocabulary", spec.vocabulary(), 2, 1u << 20));
  RETURN_IF_ERROR(CheckRange("spec.model.max_tokens", spec.max_tokens(), 2, 1u << 20));
  if (spec.width() % spec.heads() != 0) return BadField("spec.model.heads", "must divide width");
  if (spec.heads() % spec.kv_heads() != 0) return BadField("spec.model.kv_heads", "must divide heads");
  if (model->compression == Compression::kSubspace) {
    RETURN_IF_ERROR(CheckRange("spec.model.rank", spec.rank(), 1, spec.width()));
    RETURN_IF_ERROR(CheckRange("spec.model.tail_layers", spec.tail_layers(), 1, spec.layers()));
    model->rank = spec.rank();
    model->tail_layers = spec.tail_layers();
  }
  RETURN_IF_ERROR(CheckReals({{"spec.model.dropout", spec.dropout(), 0, true, 1},
                              {"spec.model.rope_theta", spec.rope_theta(), 0, false, kNoLimit},
                              {"spec.model.norm_epsilon", spec.norm_epsilon(), 0, false, kNoLimit}}));
  model->width = spec.width();
  model->layers = spec.layers();
  model->heads = spec.heads();
  model->kv_heads = spec.kv_heads();
  model->feedforward = spec.feedforward();
  model->vocabulary = spec.vocabulary();
  model->max_tokens = spec.max_tokens();
  model->dropout = spec.dropout();
  model->rope_theta = spec.rope_theta();
  model->norm_epsilon = spec.norm_epsilon();
  return absl::OkStatus();
}

absl::Status ReadOptimizerKinds(const OptimizerSpec& spec, OptimizerConfig* optimizer) {
  ASSIGN_OR_RETURN(optimizer->kind,
                   (Translate<OptimizerKindCode, OptimizerKind>("spec.optimizer.kind", spec.kind(),
                                                                {{OPTIMIZER_KIND_ADAMW, OptimizerKind::kAdamW},
                                                                 {OPTIMIZER_KIND_MUON, OptimizerKind::kMuon},
                                                                 {OPTIMIZER_KIND_NADAM, OptimizerKind::kNAdam},
                                                                 {OPTIMIZER_KIND_SGD, OptimizerKind::kSgd}})));
  ASSIGN_OR_RETURN(optimizer->rate_schedule,
                   (Translate<RateScheduleCode, RateSchedule>("spec.optimizer.rate_schedule", spec.rate_schedule(),
                                                              {{RATE_SCHEDULE_CONSTANT, RateSchedule::kConstant},
                                                               {RATE_SCHEDULE_COSINE, RateSchedule::kCosine},
                                                               {RATE_SCHEDULE_WSD, RateSchedule::kWsd},
                                                               {RATE_SCHEDULE_LINEAR, RateSchedule::kLinear},
                                                               {RATE_SCHEDULE_ONE_CYCLE, RateSchedule::kOneCycle}})));
  return absl::OkStatus();
}

absl::Status ReadOptimizer(const OptimizerSpec& spec, uint64_t total_steps, double error_feedback,
                           OptimizerConfig* optimizer) {
  RETURN_IF_ERROR(ReadOptimizerKinds(spec, optimizer));
  RETURN_IF_ERROR(CheckReals({{"spec.optimizer.learning_rate", spec.learning_rate(), 0, false, kNoLimit},
                              {"spec.optimizer.weight_decay", spec.weight_decay(), 0, true, kNoLimit},
                              {"spec.optimizer.muon_weight_decay", spec.muon_weight_decay(), 0, true, kNoLimit},
                              {"spec.optimizer.beta1", spec.beta1(), 0, true, 1},
                              {"spec.optimizer.beta2", spec.beta2(), 0, true, 1},
                              {"spec.optimizer.epsilon", spec.epsilon(), 0, false, kNoLimit},
                              {"spec.optimizer.momentum", spec.momentum(), 0, true, 1},
                              {"error_feedback", error_feedback, 0, true, 1.0 + 1e-9}}));
  if (optimizer->kind == OptimizerKind::kMuon && !(spec.muon_learning_rate() > 0)) {
    return BadField("spec.optimizer.muon_learning_rate", "must be above 0");
  }
  optimizer->learning_rate = spec.learning_rate();
  optimizer->muon_learning_rate = spec.muon_learning_rate();
  optimizer->weight_decay = spec.weight_decay();
  optimizer->muon_weight_decay = spec.muon_weight_decay();
  optimizer->beta1 = spec.beta1();
  optimizer->beta2 = spec.beta2();
  optimizer->epsilon = spec.epsilon();
  optimizer->momentum = spec.momentum();
  optimizer->nesterov = spec.nesterov();
  optimizer->warmup_steps = spec.warmup_steps();
  optimizer->total_steps = total_steps;
  optimizer->error_feedback = error_feedback;
  return absl::OkStatus();
}

absl::Status ReadClip(const OptimizerSpec& spec, RunConfig* config) {
  ASSIGN_OR_RETURN(
      const Clip clip,
      (Translate<Clip, Clip>("spec.optimizer.clip", spec.clip(),
                             {{CLIP_GLOBAL, CLIP_GLOBAL}, {CLIP_STAGE, CLIP_STAGE}, {CLIP_NONE, CLIP_NONE}})));
  config->clip_per_stage = clip == CLIP_STAGE;
  config->clip_none = clip == CLIP_NONE;
  config->clip_norm = spec.clip_norm();
  return CheckReals({{"spec.optimizer.clip_norm", spec.clip_norm(), 0, config->clip_none, kNoLimit}});
}

absl::Status ReadSchedule(const ScheduleSpec& spec, RunConfig* config) {
  RETURN_IF_ERROR(CheckRange("spec.schedule.steps", spec.steps(), 1, 1000000000));
  RETURN_IF_ERROR(CheckRange("spec.schedule.microbatches", spec.microbatches(), 1, 4096));
  RETURN_IF_ERROR(CheckRange("spec.schedule.sequences", spec.sequences(), 1, 4096));
  RETURN_IF_ERROR(CheckRange("spec.schedule.sequence_tokens", spec.sequence_tokens(), 2, 1u << 20));
  ASSIGN_OR_RETURN(config->recompute, (Translate<Recompute, RecomputeMode>("spec.schedule.recompute", spec.recompute(),
                                                                           {{RECOMPUTE_ON, RecomputeMode::kOn},
                                                                            {RECOMPUTE_OFF, RecomputeMode::kOff},
                                                                            {RECOMPUTE_AUTO, RecomputeMode::kAuto}})));
  config->total_steps = spec.steps();
  config->microbatches = spec.microbatches();
  config->sequences = spec.sequences();
  config->tokens = spec.sequence_tokens();
  return absl::OkStatus();
}

// What a spec alone decides. `error_feedback` belongs to the record.
absl::StatusOr<RunConfig> ReadSpec(const RunSpec& spec, double error_feedback) {
  RunConfig config;
  RETURN_IF_ERROR(CheckRange("spec.threads", spec.threads(), 1, 256));
  config.seed = spec.has_seed() ? spec.seed() : 1;
  config.threads = static_cast<int>(spec.threads());
  RETURN_IF_ERROR(ReadModel(spec.model(), &config.model));
  RETURN_IF_ERROR(ReadSchedule(spec.schedule(), &config));
  RETURN_IF_ERROR(ReadOptimizer(spec.optimizer(), config.total_steps, error_feedback, &config.optimizer));
  RETURN_IF_ERROR(ReadClip(spec.optimizer(), &config));
  RETURN_IF_ERROR(CheckRange("spec.evaluation.microbatches", spec.evaluation().microbatches(), 0, 65536));
  config.evaluation_every = spec.evaluation().every_steps();
  config.evaluation_microbatches = spec.evaluation().microbatches();
  config.checkpoint_every = spec.checkpoint().every_steps();
  config.data_path = spec.data().path();
  if (config.model.architecture == Architecture::kGpt2 && config.tokens > config.model.max_tokens) {
    return BadField("spec.schedule.sequence_tokens", "must not be above spec.model.max_tokens (learned positions)");
  }
  return config;
}

absl::Status ReadJTable(const RunRecord& record, RunConfig* config) {
  if (record.j_table().empty()) return BadField("j_table", "is empty; it needs an entry for step 0");
  config->j_table.clear();
  for (const JEntry& entry : record.j_table()) {
    const bool sorted =
        config->j_table.empty() ? entry.from_step() == 0 : entry.from_step() > config->j_table.back().from_step;
    if (!sorted) return BadField("j_table", "must start at step 0 and rise");
    config->j_table.push_back({entry.from_step(), entry.j()});
  }
  return absl::OkStatus();
}

// `row`: the record of a run of one cluster, or that of one of several, or of an earlier plan. `read` gets them.
template <typename Row, typename Read>
absl::Status ReadCuts(const Row& row, const ModelConfig& model, Read* read) {
  if (row.codecs_size() != row.cuts_size()) {
    return BadField("codecs", absl::StrCat("must have one entry per cut, got ", row.codecs_size(), " for ",
                                           row.cuts_size(), " cuts"));
  }
  for (int i = 0; i < row.cuts_size(); ++i) {
    const uint32_t cut = row.cuts(i);
    if (!read->cuts.empty() && cut <= read->cuts.back()) return BadField("cuts", "must rise");
    if (!model.CutAllowed(cut)) return BadField("cuts", absl::StrCat("cannot lie in front of unit ", cut));
    read->cuts.push_back(cut);
    ASSIGN_OR_RETURN(const WireFormat codec, ReadWireFormat("codecs", row.codecs(i)));
    read->codecs.push_back(codec);
  }
  return absl::OkStatus();
}

StageCuts WithEnds(const ClusterRecord& row, const ModelConfig& model) {
  StageCuts cuts = {0};
  cuts.insert(cuts.end(), row.cuts().begin(), row.cuts().end());
  cuts.push_back(model.num_units());
  return cuts;
}

absl::Status ReadEarlierPlans(const RunRecord& record, uint32_t cluster, RunConfig* config) {
  if (record.earlier_plans().empty()) return absl::OkStatus();
  if (!record.stage_delays().empty() || config->clip_per_stage) {
    return BadField("earlier_plans", "cannot be with stage_delays or with clipping of each stage");
  }
  for (const EarlierPlan& plan : record.earlier_plans()) {
    EarlierCuts cuts;
    cuts.end_step = plan.end_step();
    if (!config->earlier_cuts.empty() && cuts.end_step < config->earlier_cuts.back().end_step) {
      return BadField("earlier_plans", "must rise");
    }
    if (plan.clusters_size() != record.clusters_size()) {
      return BadField("earlier_plans.clusters", "must be as many as those of the run");
    }
    for (const ClusterRecord& row : plan.clusters()) cuts.cluster_cuts.push_back(WithEnds(row, config->model));
    if (plan.clusters().empty()) {
      RETURN_IF_ERROR(ReadCuts(plan, config->model, &cuts));
    } else {
      RETURN_IF_ERROR(ReadCuts(plan.clusters(static_cast<int>(cluster)), config->model, &cuts));
      const auto shards = RefineCuts(cuts.cluster_cuts);
      if (!shards.ok()) return BadField("earlier_plans.clusters", shards.status().message());
    }
    config->earlier_cuts.push_back(std::move(cuts));
  }
  return absl::OkStatus();
}

absl::Status ReadAveraging(const RunRecord& record, RunConfig* config) {
  const AveragingSpec& spec = record.spec().averaging();
  for (const ClusterRecord& row : record.clusters()) {
    config->cluster_cuts.push_back(WithEnds(row, config->model));
    if (row.steps_per_round() != record.clusters(0).steps_per_round()) {
      return BadField("clusters.steps_per_round", "must be the same in all clusters that average");
    }
  }
  AveragingConfig& averaging = config->averaging;
  averaging.rounds = {record.clusters(0).steps_per_round(), spec.delay_steps()};
  if (averaging.rounds.delay_steps >= averaging.rounds.every_steps) {
    return BadField("spec.averaging.delay_steps", "must be below every_steps");
  }
  ASSIGN_OR_RETURN(averaging.codec,
                   (Translate<AveragingWireCode, AveragingCodec>("spec.averaging.wire", spec.wire(),
                                                                 {{AVERAGING_WIRE_FP32, AveragingCodec::kFp32},
                                                                  {AVERAGING_WIRE_BF16, AveragingCodec::kBf16},
                                                                  {AVERAGING_WIRE_INT8, AveragingCodec::kInt8},
                                                                  {AVERAGING_WIRE_INT4, AveragingCodec::kInt4}})));
  // 15 levels alone lose too much of a difference; what they lose is added to the next one.
  averaging.error_feedback = averaging.codec == AveragingCodec::kInt4;
  ASSIGN_OR_RETURN(averaging.outer.kind,
                   (Translate<OuterCode, OuterOptimizer::Kind>("spec.averaging.outer", spec.outer(),
                                                               {{OUTER_PLAIN, OuterOptimizer::Kind::kPlainMean},
                                                                {OUTER_SGD, OuterOptimizer::Kind::kSgd},
                                                                {OUTER_NESTEROV, OuterOptimizer::Kind::kNesterov}})));
  RETURN_IF_ERROR(CheckReals({{"spec.averaging.outer_learning_rate", spec.outer_learning_rate(), 0, false, kNoLimit},
                              {"spec.averaging.outer_momentum", spec.outer_momentum(), 0, true, 1}}));
  averaging.outer.eta = spec.outer_learning_rate();
  averaging.outer.mu = spec.outer_momentum();
  const auto shards = RefineCuts(config->cluster_cuts);
  return shards.ok() ? absl::OkStatus() : BadField("clusters.cuts", shards.status().message());
}

absl::Status ReadClusters(const RunRecord& record, uint32_t cluster, RunConfig* config) {
  if (record.clusters().empty()) {
    if (cluster > 0) return BadField("clusters", absl::StrCat("has no row ", cluster));
    return ReadCuts(record, config->model, config);
  }
  const auto count = static_cast<uint32_t>(record.clusters_size());
  RETURN_IF_ERROR(CheckRange("clusters", count, 2, kMaxClusters));
  if (cluster >= count) return BadField("clusters", absl::StrCat("has no row ", cluster));
  if (!record.cuts().empty() || !record.codecs().empty() || !record.stage_delays().empty()) {
    return BadField("cuts", "must be empty beside clusters, whose rows have their own");
  }
  std::vector<uint64_t> steps_per_round;
  for (const ClusterRecord& row : record.clusters()) {
    RETURN_IF_ERROR(CheckRange("clusters.steps_per_round", row.steps_per_round(), 1, 1000000000));
    steps_per_round.push_back(row.steps_per_round());
  }
  config->cluster = cluster;
  config->num_clusters = count;
  config->cluster_steps = ClusterSteps(std::move(steps_per_round), cluster);
  // An earlier version wrote records without a wire, of clusters that did not average.
  if (record.spec().averaging().wire() != AVERAGING_WIRE_UNSPECIFIED) RETURN_IF_ERROR(ReadAveraging(record, config));
  return ReadCuts(record.clusters(static_cast<int>(cluster)), config->model, config);
}

absl::Status ReadStageDelays(const RunRecord& record, RunConfig* config) {
  config->stage_delays.assign(record.stage_delays().begin(), record.stage_delays().end());
  if (config->stage_delays.empty()) return absl::OkStatus();
  if (config->stage_delays.size() != config->num_stages()) {
    return BadField("stage_delays", absl::StrCat("must have one entry per stage, got ", config->stage_delays.size(),
                                                 " for ", config->num_stages(), " stages"));
  }
  if (config->microbatches != 1) {
    return BadField("spec.schedule.microbatches", "must be 1 with stage_delays (pipedream updates after each one)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunConfig> ReadRunConfig(const RunRecord& record, uint32_t cluster) {
  ASSIGN_OR_RETURN(RunConfig config, ReadSpec(record.spec(), record.error_feedback()));
  RETURN_IF_ERROR(ReadJTable(record, &config));
  RETURN_IF_ERROR(ReadClusters(record, cluster, &config));
  RETURN_IF_ERROR(ReadStageDelays(record, &config));
  RETURN_IF_ERROR(ReadEarlierPlans(record, cluster, &config));
  if (config.data_path.empty()) return BadField("spec.data.path", "is empty");
  RETURN_IF_ERROR(CheckRange("training_windows", record.training_windows(), 1, uint64_t{1} << 48));
  RETURN_IF_ERROR(CheckRange("evaluation_windows", record.evaluation_windows(), 1, uint64_t{1} << 48));
  config.training_windows = record.training_windows();
  config.evaluation_windows = record.evaluation_windows();
  return config;
}

absl::StatusOr<RunConfig> ReadRunConfig(const RunSpec& spec) {
  RunSpec probed = spec;
  // M is decided from what the probe measures; one microbatch costs the same for every M.
  if (probed.schedule().microbatches() == 0) probed.mutable_schedule()->set_microbatches(1);
  return ReadSpec(probed, spec.optimizer().error_feedback());
}

}  // namespace stagecoach
