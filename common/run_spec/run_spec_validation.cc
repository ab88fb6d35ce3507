#include "common/run_spec/run_spec_validation.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/averaging/outer_optimizer.h"
#include "common/run_spec/run_spec_fields.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr uint64_t kMostLosses = 2000000;  // of a manifest, about 23 bytes each as JSON
constexpr uint32_t kMostClusters = 64;

// Oldest delay in steps that a spec may ask for: a stage keeps tau + 2 copies of its weights (02 section 5).
constexpr uint64_t kMaxForcedDelay = 8;

absl::Status Invalid(absl::string_view path, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text));
}

// Value of a set number as a double; false if the field is not a number or not set.
bool NumberOf(const Message& message, const FieldDescriptor* field, double* value) {
  const auto* reflection = message.GetReflection();
  if (!reflection->HasField(message, field)) return false;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_FLOAT:
      *value = reflection->GetFloat(message, field);
      return true;
    case FieldDescriptor::CPPTYPE_INT64:
      *value = static_cast<double>(reflection->GetInt64(message, field));
      return true;
    case FieldDescriptor::CPPTYPE_UINT32:
      *value = reflection->GetUInt32(message, field);
      return true;
    case FieldDescriptor::CPPTYPE_UINT64:
      *value = static_cast<double>(reflection->GetUInt64(message, field));
      return true;
    default:
      return false;
  }
}

absl::Status CheckField(const RunSpec& spec, const FieldRule& rule) {
  const Message* message = &spec;
  const FieldDescriptor* field = nullptr;
  for (absl::string_view part : absl::StrSplit(rule.path, '.')) {
    if (field != nullptr) message = &message->GetReflection()->GetMessage(*message, field);
    field = message->GetDescriptor()->FindFieldByName(std::string(part));
  }
  const auto* reflection = message->GetReflection();
  if (!reflection->HasField(*message, field)) {
    return rule.required ? Invalid(rule.path, absl::StrCat("is missing; allowed: ", rule.allowed)) : absl::OkStatus();
  }
  double value = 0;
  if (NumberOf(*message, field, &value)) return CheckRange(rule, rule.path, value, absl::StrCat(value));
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const int number = reflection->GetEnumValue(*message, field);
    if (field->enum_type()->FindValueByNumber(number) == nullptr) {
      return Invalid(rule.path, absl::StrCat(number, " is unknown; allowed: ", rule.allowed));
    }
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && reflection->GetString(*message, field).size() > 4096) {
    return Invalid(rule.path, "is longer than 4096 bytes");
  }
  if (absl::string_view(rule.path) == "name" && !IsValidName(spec.name())) {
    return Invalid(rule.path, absl::StrCat("is not a name; allowed: ", rule.allowed));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const ModelSpec& model, uint32_t sequence_tokens) {
  if (model.width() % model.heads() != 0) {
    return Invalid("model.heads", absl::StrCat(model.heads(), " does not divide model.width ", model.width()));
  }
  if (model.heads() % model.kv_heads() != 0) {
    return Invalid("model.kv_heads", absl::StrCat(model.kv_heads(), " does not divide model.heads ", model.heads()));
  }
  if (model.architecture() == ARCHITECTURE_GPT2 && model.kv_heads() != model.heads()) {
    return Invalid("model.kv_heads", "fewer than heads is only for architecture llama");
  }
  if (model.architecture() == ARCHITECTURE_LLAMA && (model.width() / model.heads()) % 2 != 0) {
    return Invalid("model.heads", absl::StrCat("width / heads = ", model.width() / model.heads(),
                                               " is odd; rotary positions need an even head dimension"));
  }
  if (model.compression() == COMPRESSION_SUBSPACE) {
    if (model.rank() > model.width()) {
      return Invalid("model.rank", absl::StrCat(model.rank(), " is above model.width ", model.width()));
    }
    if (model.tail_layers() > model.layers()) {
      return Invalid("model.tail_layers", absl::StrCat(model.tail_layers(), " is above model.layers ", model.layers()));
    }
  } else if (model.rank() != 0 || model.tail_layers() != 0) {
    return Invalid(model.rank() != 0 ? "model.rank" : "model.tail_layers", "needs model.compression: subspace");
  }
  if (model.max_tokens() < sequence_tokens) {
    return Invalid("model.max_tokens",
                   absl::StrCat(model.max_tokens(), " is below schedule.sequence_tokens ", sequence_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckSchedule(const RunSpec& original, const RunSpec& spec) {
  const ScheduleSpec& schedule = spec.schedule();
  const uint64_t m = schedule.microbatches();
  if (schedule.j() >= 0 && schedule.kind() != SCHEDULE_KIND_FD_2BW) {
    return Invalid("schedule.j", "may only be given with schedule.kind: fd-2bw; the other kinds fix it");
  }
  if (m > 0 && schedule.j() > static_cast<int64_t>(kMaxForcedDelay * m)) {
    return Invalid("schedule.j", absl::StrCat(schedule.j(), " is above ", kMaxForcedDelay,
                                              " microbatches (weights would be more than ", kMaxForcedDelay,
                                              " steps old); use a larger schedule.microbatches"));
  }
  if (schedule.sync_warmup_steps() > schedule.steps()) {
    return Invalid("schedule.sync_warmup_steps",
                   absl::StrCat(schedule.sync_warmup_steps(), " is above schedule.steps ", schedule.steps()));
  }
  if (spec.optimizer().warmup_steps() > schedule.steps()) {
    return Invalid("optimizer.warmup_steps",
                   absl::StrCat(spec.optimizer().warmup_steps(), " is above schedule.steps ", schedule.steps()));
  }
  if (schedule.kind() == SCHEDULE_KIND_PIPEDREAM) {
    if (spec.optimizer().clip() == CLIP_GLOBAL) {
      return Invalid("optimizer.clip", "global is not possible with schedule.kind: pipedream; allowed: stage, none");
    }
    if (original.optimizer().error_feedback() > 0) {
      return Invalid("optimizer.error_feedback", "is not possible with schedule.kind: pipedream");
    }
  }
  if (spec.optimizer().nesterov() && spec.optimizer().kind() != OPTIMIZER_KIND_SGD) {
    return Invalid("optimizer.nesterov", "is only for optimizer.kind: sgd");
  }
  return absl::OkStatus();
}

// The manifest of a checkpoint (64 MiB at most) holds the loss of every update; with several clusters those of each and
// their mean.
absl::Status CheckHistory(const RunSpec& spec) {
  const ScheduleSpec& schedule = spec.schedule();
  // What is chosen later stays within MostClusters.
  const uint64_t clusters = spec.averaging().choose_clusters() ? 1 : spec.averaging().clusters(),
                 updates = std::max(1u, schedule.microbatches());
  const uint64_t rows = clusters > 1 ? clusters + 1 : schedule.kind() == SCHEDULE_KIND_PIPEDREAM ? updates : 1;
  if (schedule.steps() <= kMostLosses / rows) return absl::OkStatus();
  return Invalid("schedule.steps", absl::StrCat(schedule.steps(), " is above ", kMostLosses / rows, ", the most with ",
                                                clusters > 1 ? absl::StrCat(clusters, " clusters")
                                                             : absl::StrCat(updates, " pipedream updates a step"),
                                                ": every checkpoint's manifest holds all losses"));
}

// `spec` with every default filled in.
absl::Status CheckAveraging(const RunSpec& original, const RunSpec& spec) {
  const AveragingSpec& averaging = spec.averaging();
  if (averaging.clusters() <= 1) return absl::OkStatus();
  if (spec.schedule().kind() == SCHEDULE_KIND_PIPEDREAM) {
    return Invalid("averaging.clusters", "above 1 is not possible with schedule.kind: pipedream");
  }
  const ScheduleKind kind = spec.schedule().kind();
  if (averaging.choose_clusters() && (kind == SCHEDULE_KIND_GPIPE || kind == SCHEDULE_KIND_SYNC_1F1B)) {
    return Invalid("averaging.choose_clusters",
                   "is not possible with this schedule.kind, a baseline with windows of its own that are not planned; "
                   "allowed: fd-2bw, sync, 2bw");
  }
  if (averaging.delay_steps() >= averaging.every_steps()) {
    return Invalid("averaging.delay_steps",
                   absl::StrCat(averaging.delay_steps(), " must be below averaging.every_steps, ",
                                averaging.every_steps(), ": the result of a round enters before the next one begins"));
  }
  const AveragingSpec& given = original.averaging();
  if (averaging.outer() == OUTER_PLAIN && given.outer_learning_rate() != 0 && given.outer_learning_rate() != 1) {
    return Invalid("averaging.outer_learning_rate", "is not possible with averaging.outer: plain");
  }
  if (averaging.outer() == OUTER_PLAIN && given.outer_momentum() != 0) {
    return Invalid("averaging.outer_momentum", "is not possible with averaging.outer: plain");
  }
  return absl::OkStatus();
}

void FillAveraging(uint64_t steps, AveragingSpec* averaging) {
  if (averaging->every_steps() == 0) averaging->set_every_steps(100);
  const uint64_t every = averaging->every_steps();
  if (!averaging->has_delay_steps()) averaging->set_delay_steps(std::min<uint64_t>(5, every - 1));
  if (averaging->wire() == AVERAGING_WIRE_UNSPECIFIED) averaging->set_wire(AVERAGING_WIRE_INT8);
  const OuterOptimizer chosen = DefaultOuterOptimizer(every, steps / every);
  if (averaging->outer() == OUTER_UNSPECIFIED) {
    averaging->set_outer(chosen.kind == OuterOptimizer::Kind::kPlainMean ? OUTER_PLAIN : OUTER_NESTEROV);
  }
  const bool nesterov = averaging->outer() == OUTER_NESTEROV;
  const bool plain = averaging->outer() == OUTER_PLAIN;
  if (averaging->outer_learning_rate() == 0) {
    averaging->set_outer_learning_rate(plain ? 1.0f : nesterov && every >= 30 && every < 100 ? 0.4f : 0.7f);
  }
  if (!averaging->has_outer_momentum()) {
    averaging->set_outer_momentum(!nesterov ? 0.0f : every >= 30 ? 0.9f : 0.3f);
  }
}

uint32_t RoundUp(uint64_t value, uint64_t multiple) {
  return static_cast<uint32_t>((value + multiple - 1) / multiple * multiple);
}

void FillModel(ModelSpec* model, uint32_t vocabulary, uint32_t sequence_tokens) {
  if (model->architecture() == ARCHITECTURE_UNSPECIFIED) model->set_architecture(ARCHITECTURE_LLAMA);
  if (model->kv_heads() == 0) model->set_kv_heads(model->heads());
  if (model->feedforward() == 0) {
    const uint64_t width = model->width();
    model->set_feedforward(model->architecture() == ARCHITECTURE_LLAMA ? RoundUp((8 * width + 2) / 3, 32)
                                                                       : static_cast<uint32_t>(4 * width));
  }
  if (model->vocabulary() == 0) model->set_vocabulary(vocabulary);
  if (model->max_tokens() == 0) model->set_max_tokens(sequence_tokens);
  if (model->compression() == COMPRESSION_UNSPECIFIED) model->set_compression(COMPRESSION_SUBSPACE);
  const bool subspace = model->compression() == COMPRESSION_SUBSPACE;
  if (model->norm() == NORM_UNSPECIFIED) model->set_norm(subspace ? NORM_REORDERED : NORM_PRE);
  if (subspace && model->rank() == 0) {
    model->set_rank(std::min(model->width(), std::max(32u, RoundUp((model->width() + 31) / 32, 32))));
  }
  if (subspace && model->tail_layers() == 0) model->set_tail_layers(1);
  if (model->rope_theta() == 0) model->set_rope_theta(10000);
  if (model->compute() == COMPUTE_TYPE_UNSPECIFIED) model->set_compute(COMPUTE_TYPE_FP32);
  if (model->norm_epsilon() == 0) model->set_norm_epsilon(1e-5f);
}

// Those whose value does not depend on the kind of optimizer.
void FillOptimizer(OptimizerSpec* optimizer, const ScheduleSpec& schedule) {
  if (optimizer->muon_learning_rate() == 0) optimizer->set_muon_learning_rate(0.02f);
  if (!optimizer->has_muon_weight_decay()) optimizer->set_muon_weight_decay(0.01f);
  if (optimizer->beta2() == 0) optimizer->set_beta2(0.95f);
  if (optimizer->epsilon() == 0) optimizer->set_epsilon(1e-8f);
  if (optimizer->rate_schedule() == RATE_SCHEDULE_UNSPECIFIED) optimizer->set_rate_schedule(RATE_SCHEDULE_COSINE);
  if (!optimizer->has_warmup_steps()) {
    optimizer->set_warmup_steps(static_cast<uint32_t>(std::min<uint64_t>(schedule.steps() / 10, 2000)));
  }
  if (optimizer->clip() == CLIP_UNSPECIFIED) {
    optimizer->set_clip(schedule.kind() == SCHEDULE_KIND_PIPEDREAM ? CLIP_STAGE : CLIP_GLOBAL);
  }
  if (optimizer->clip_norm() == 0) optimizer->set_clip_norm(1);
}

}  // namespace

absl::Status ValidateRunSpec(const RunSpec& spec) {
  for (const FieldRule& rule : RunSpecFields()) RETURN_IF_ERROR(CheckField(spec, rule));
  RunSpec filled = spec;
  FillDefaults(&filled, 0);
  RETURN_IF_ERROR(CheckModel(filled.model(), filled.schedule().sequence_tokens()));
  RETURN_IF_ERROR(CheckSchedule(spec, filled));
  RETURN_IF_ERROR(CheckHistory(filled));
  return CheckAveraging(spec, filled);
}

void FillDefaults(RunSpec* spec, uint32_t vocabulary) {
  if (spec->name().empty()) spec->set_name("run");
  if (!spec->has_seed()) spec->set_seed(1);
  if (spec->threads() == 0) spec->set_threads(1);
  ScheduleSpec* schedule = spec->mutable_schedule();
  if (schedule->kind() == SCHEDULE_KIND_UNSPECIFIED) schedule->set_kind(SCHEDULE_KIND_FD_2BW);
  if (!schedule->has_j()) schedule->set_j(-1);
  if (schedule->recompute() == RECOMPUTE_UNSPECIFIED) schedule->set_recompute(RECOMPUTE_AUTO);
  FillModel(spec->mutable_model(), vocabulary, schedule->sequence_tokens());
  FillOptimizer(spec->mutable_optimizer(), *schedule);
  if (!schedule->has_sync_warmup_steps()) {
    schedule->set_sync_warmup_steps(std::min<uint64_t>(
        schedule->steps(), std::max<uint64_t>(schedule->steps() / 10, spec->optimizer().warmup_steps())));
  }
  if (spec->data().validation_fraction() == 0) spec->mutable_data()->set_validation_fraction(0.02f);
  if (spec->wire().format() == WIRE_FORMAT_UNSPECIFIED) {
    spec->mutable_wire()->set_format(spec->model().compression() == COMPRESSION_SUBSPACE ? WIRE_FORMAT_INT8
                                                                                         : WIRE_FORMAT_BF16);
  }
  if (!spec->evaluation().has_microbatches()) spec->mutable_evaluation()->set_microbatches(8);
  if (spec->checkpoint().keep() == 0) spec->mutable_checkpoint()->set_keep(3);
  ReplanSpec* replan = spec->mutable_replan();
  if (replan->lost_worker() == REPLAN_MODE_UNSPECIFIED) replan->set_lost_worker(REPLAN_MODE_ON);
  if (replan->most_per_hour() == 0) replan->set_most_per_hour(6);
  // A run of one cluster has no averaging, and its record does not speak of it.
  AveragingSpec* averaging = spec->mutable_averaging();
  if (averaging->choose_clusters() && averaging->clusters() == 0) averaging->set_clusters(kMostClusters);
  if (averaging->clusters() <= 1 && !averaging->choose_clusters()) {
    spec->clear_averaging();
  } else {
    FillAveraging(schedule->steps(), averaging);
  }
}

uint32_t MostClusters(const RunSpec& spec) {
  const uint64_t rows = kMostLosses / std::max<uint64_t>(1, spec.schedule().steps());
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows, 2, std::max(1u, spec.averaging().clusters()) + 1) - 1);
}

void FillPlannedDefaults(RunSpec* spec, uint32_t microbatches, uint32_t j, bool delayed) {
  spec->mutable_schedule()->set_microbatches(microbatches);
  // The other kinds fix J; a spec that names it would not validate.
  if (spec->schedule().kind() == SCHEDULE_KIND_FD_2BW) spec->mutable_schedule()->set_j(j);
  OptimizerSpec* optimizer = spec->mutable_optimizer();
  if (optimizer->kind() == OPTIMIZER_KIND_UNSPECIFIED) {
    optimizer->set_kind(delayed ? OPTIMIZER_KIND_MUON : OPTIMIZER_KIND_ADAMW);
  }
  const auto kind = optimizer->kind();
  const bool sgd = kind == OPTIMIZER_KIND_SGD, nadam = kind == OPTIMIZER_KIND_NADAM;
  if (optimizer->learning_rate() == 0) optimizer->set_learning_rate(sgd ? 0.1f : 3e-4f);
  if (!optimizer->has_weight_decay()) optimizer->set_weight_decay(sgd ? 0 : nadam ? 0.01f : 0.1f);
  if (optimizer->beta1() == 0) optimizer->set_beta1(nadam ? 0.99f : 0.9f);
  if (optimizer->momentum() == 0) optimizer->set_momentum(sgd ? 0.9f : 0.95f);
  if (!optimizer->has_error_feedback()) {
    optimizer->set_error_feedback(j > 0 ? std::min(1.0f, static_cast<float>(j) / static_cast<float>(microbatches)) : 0);
  }
}

}  // namespace stagecoach
