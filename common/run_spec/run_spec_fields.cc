#include "common/run_spec/run_spec_fields.h"

#include <limits>

namespace stagecoach {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

}  // namespace

const FieldRules& RunSpecFields() {
  static const auto* const rules = new FieldRules{
      {"name", 0, 0, false, false, false, kNamePattern, "run", true},
      {"seed", 0, 18446744073709551615.0, false, false, false, "0..18446744073709551615", "1"},
      {"threads", 1, 256, false, false, false, "1..256", "1"},
      {"model.architecture", 0, 0, false, false, false, "llama, gpt2", "llama"},
      {"model.width", 8, 65536, false, false, true, "8..65536", "required"},
      {"model.layers", 1, 1024, false, false, true, "1..1024", "required"},
      {"model.heads", 1, 65536, false, false, true, "1..65536, divides width", "required"},
      {"model.kv_heads", 1, 65536, false, false, false, "1..heads, divides heads", "heads"},
      {"model.feedforward", 1, 1048576, false, false, false, "1..1048576",
       "llama: 8 width / 3 rounded up to 32; gpt2: 4 width"},
      {"model.vocabulary", 2, 1048576, false, false, false, "2..1048576", "that of the data"},
      {"model.max_tokens", 2, 1048576, false, false, false, "2..1048576", "schedule.sequence_tokens"},
      {"model.norm", 0, 0, false, false, false, "pre, reordered", "reordered with a subspace, else pre"},
      {"model.compression", 0, 0, false, false, false, "none, subspace", "subspace"},
      {"model.rank", 1, 65536, false, false, false, "1..width", "max(32, width/32 rounded up to 32), at most width"},
      {"model.tail_layers", 1, 1024, false, false, false, "1..layers", "1"},
      {"model.dropout", 0, 1, false, true, false, "0 <= x < 1", "0"},
      {"model.rope_theta", 0, kAny, true, true, false, "> 0", "10000"},
      {"model.compute", 0, 0, false, false, false, "fp32, bf16", "fp32"},
      {"model.norm_epsilon", 0, 1, true, true, false, "0 < x < 1", "1e-5"},
      {"data.path", 0, 0, false, false, true, "a folder made by stagecoach-model prepare, or a .bin file", "required"},
      {"data.validation_fraction", 0, 0.5, true, false, false, "0 < x <= 0.5", "0.02"},
      {"optimizer.kind", 0, 0, false, false, false, "adamw, muon, nadam, sgd", "adamw when J = 0, else muon"},
      {"optimizer.learning_rate", 0, 1000, true, false, false, "0 < x <= 1000", "3e-4; sgd 0.1"},
      {"optimizer.muon_learning_rate", 0, 1000, true, false, false, "0 < x <= 1000", "0.02"},
      {"optimizer.weight_decay", 0, 1000, false, false, false, "0 <= x <= 1000", "adamw, muon 0.1; nadam 0.01; sgd 0"},
      {"optimizer.muon_weight_decay", 0, 1000, false, false, false, "0 <= x <= 1000", "0.01"},
      {"optimizer.beta1", 0, 1, true, true, false, "0 < x < 1", "0.9; nadam 0.99"},
      {"optimizer.beta2", 0, 1, true, true, false, "0 < x < 1", "0.95"},
      {"optimizer.epsilon", 0, 1, true, true, false, "0 < x < 1", "1e-8"},
      {"optimizer.momentum", 0, 1, true, true, false, "0 < x < 1", "muon 0.95; sgd 0.9"},
      {"optimizer.nesterov", 0, 0, false, false, false, "true, false (sgd only)", "false"},
      {"optimizer.rate_schedule", 0, 0, false, false, false, "constant, cosine, wsd, linear, one-cycle", "cosine"},
      {"optimizer.warmup_steps", 0, 1e9, false, false, false, "0..steps", "steps / 10, at most 2000"},
      {"optimizer.clip", 0, 0, false, false, false, "global, stage, none", "global; pipedream: stage"},
      {"optimizer.clip_norm", 0, 1e9, true, false, false, "0 < x <= 1e9", "1.0"},
      {"optimizer.error_feedback", 0, 1, false, false, false, "0 <= x <= 1", "phi = J / M when J > 0, at most 1"},
      {"schedule.kind", 0, 0, false, false, false, "fd-2bw, sync, sync-1f1b, gpipe, 2bw, pipedream", "fd-2bw"},
      {"schedule.steps", 1, 2e6, false, false, true,
       "1..2000000 (every checkpoint's manifest holds the losses of all steps)", "required"},
      {"schedule.microbatches", 0, 4096, false, false, false, "0..4096; 0 = chosen with the plan", "0: 2N"},
      {"schedule.sequences", 1, 4096, false, false, true, "1..4096", "required"},
      {"schedule.sequence_tokens", 2, 1048576, false, false, true, "2..1048576", "required"},
      {"schedule.j", -1, 32768, false, false, false, "auto, or 0..32768 (fd-2bw only)", "auto"},
      {"schedule.recompute", 0, 0, false, false, false, "on, off, auto", "auto"},
      {"schedule.sync_warmup_steps", 0, 1e9, false, false, false, "0..steps",
       "max(steps / 10, optimizer.warmup_steps)"},
      {"wire.format", 0, 0, false, false, false, "fp32, bf16, int8", "int8 with a subspace, else bf16"},
      {"evaluation.every_steps", 0, 1e9, false, false, false, "0..1000000000; 0 = only at the end", "0"},
      {"evaluation.microbatches", 0, 65536, false, false, false, "0..65536; 0 = no evaluation", "8"},
      {"checkpoint.every_steps", 0, 1e9, false, false, false, "0..1000000000; 0 = only at the end", "0"},
      {"checkpoint.keep", 1, 1000, false, false, false, "1..1000", "3"},
      {"averaging.clusters", 1, 64, false, false, false, "1..64", "1; with choose_clusters 64"},
      {"averaging.every_steps", 1, 1e9, false, false, false, "1..1000000000", "100"},
      {"averaging.delay_steps", 0, 1e9, false, false, false, "0..every_steps - 1", "5, at most every_steps - 1"},
      {"averaging.wire", 0, 0, false, false, false, "fp32, bf16, int8, int4", "int8"},
      {"averaging.outer", 0, 0, false, false, false, "plain, sgd, nesterov",
       "nesterov when every_steps >= 30 and at least 50 rounds, else plain"},
      {"averaging.outer_learning_rate", 0, 10, true, false, false, "0 < x <= 10 (not with plain)",
       "0.7; nesterov with every_steps 30..99: 0.4"},
      {"averaging.outer_momentum", 0, 1, false, true, false, "0 <= x < 1 (not with plain)",
       "nesterov 0.9, with every_steps < 30: 0.3; sgd 0"},
      {"averaging.choose_clusters", 0, 0, false, false, false, "true, false", "false"},
      {"replan.lost_worker", 0, 0, false, false, false, "on, off", "on"},
      {"replan.most_per_hour", 1, 60, false, false, false, "1..60", "6"},
      {"run_dir", 0, 0, false, false, true, "a folder that every worker reaches by this path", "required"},
  };
  return *rules;
}

}  // namespace stagecoach
