// Everything that the arithmetic of a run depends on, as plain values: what the worker's executor and the oracle are
// built from. Made from a RunRecord by record_reader.h (protobuf stays out of files that see torch).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/averaging/averaging_config.h"
#include "common/averaging/shard_map.h"
#include "common/cluster_rules.h"
#include "common/codec/number_codec.h"
#include "common/schedule_rules.h"

namespace stagecoach {

enum class Architecture { kLlama, kGpt2 };
enum class NormPlacement { kPre, kReordered };
enum class Compression { kNone, kSubspace };
enum class ComputeType { kFp32, kBf16 };

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t width = 0, layers = 0, heads = 0, kv_heads = 0, feedforward = 0, vocabulary = 0, max_tokens = 0;
  NormPlacement norm = NormPlacement::kPre;
  Compression compression = Compression::kNone;
  int64_t rank = 0, tail_layers = 0;  // only with a subspace
  float dropout = 0, rope_theta = 10000, norm_epsilon = 1e-5f;
  ComputeType compute = ComputeType::kFp32;

  // Units: 0 embedding, 1..layers blocks, layers+1 final norm + head + loss.
  uint32_t num_units() const { return static_cast<uint32_t>(layers) + 2; }
  // Numbers a token that cross a boundary: rank with a subspace, else width.
  uint32_t boundary_columns() const {
    return static_cast<uint32_t>(compression == Compression::kSubspace ? rank : width);
  }
  // A cut may lie in front of unit `unit` (subspace: behind blocks 1..layers-tail_layers; dense: behind any block).
  bool CutAllowed(uint32_t unit) const {
    const int64_t last = compression == Compression::kSubspace ? layers - tail_layers + 1 : layers + 1;
    return unit >= 2 && unit <= last;
  }
};

enum class OptimizerKind { kAdamW, kMuon, kNAdam, kSgd };
enum class RateSchedule { kConstant, kCosine, kWsd, kLinear, kOneCycle };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 3e-4, muon_learning_rate = 0.02;
  double weight_decay = 0.1, muon_weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, momentum = 0.95;
  bool nesterov = false;
  RateSchedule rate_schedule = RateSchedule::kCosine;
  uint64_t warmup_steps = 0, total_steps = 1;
  double error_feedback = 0;  // rho, in effect in steps with J_t > 0
  bool keeps_previous_step() const { return error_feedback > 0; }
};

enum class RecomputeMode { kOn, kOff, kAuto };  // kAuto: the executor keeps activations when memory allows

// Of the steps below end_step that no earlier one covers.
struct EarlierCuts {
  uint64_t end_step = 0;
  std::vector<uint32_t> cuts;
  std::vector<WireFormat> codecs;
  std::vector<StageCuts> cluster_cuts;
};

struct RunConfig {
  uint64_t seed = 1;
  int threads = 1;
  ModelConfig model;
  OptimizerConfig optimizer;
  uint32_t microbatches = 1;           // M
  uint32_t sequences = 1, tokens = 2;  // B, T
  uint64_t total_steps = 1;
  std::vector<JTableEntry> j_table{{0, 0}};
  std::vector<uint32_t> stage_delays;  // pipedream only: stage i uses J = stage_delays[i], M = 1
  std::vector<uint32_t> cuts;          // ascending units
  std::vector<WireFormat> codecs;      // one per cut
  bool clip_per_stage = false, clip_none = false;
  double clip_norm = 1;
  uint64_t evaluation_every = 0;
  uint32_t evaluation_microbatches = 0;
  uint64_t checkpoint_every = 0;
  RecomputeMode recompute = RecomputeMode::kOn;  // same bits either way
  std::string data_path;
  uint64_t training_windows = 1, evaluation_windows = 1;
  // Of one of several clusters: cuts and codecs above are its own.
  uint32_t cluster = 0, num_clusters = 1;
  ClusterSteps cluster_steps;
  AveragingConfig averaging;            // with the other clusters; not enabled: they only train beside each other
  std::vector<StageCuts> cluster_cuts;  // of every cluster, the ends of the model included
  // Plans that the run had before, ascending; cuts, codecs and cluster_cuts above are those of its newest one.
  std::vector<EarlierCuts> earlier_cuts;

  // What data, dropout and stochastic rounding of microbatch n are functions of.
  uint64_t GlobalMicrobatch(uint64_t n) const { return cluster_steps.GlobalMicrobatch(n, microbatches); }
  uint32_t num_stages() const { return static_cast<uint32_t>(cuts.size()) + 1; }
  uint32_t first_unit(uint32_t stage) const { return stage == 0 ? 0 : cuts[stage - 1]; }
  uint32_t end_unit(uint32_t stage) const { return stage == cuts.size() ? model.num_units() : cuts[stage]; }
  VersionRule RuleOfStage(uint32_t stage) const {
    if (!stage_delays.empty()) return VersionRule(microbatches, {{0, stage_delays[stage]}});
    return VersionRule(microbatches, j_table);
  }
  ItemOrder Order() const { return ItemOrder(microbatches, total_steps, evaluation_every, evaluation_microbatches); }
};

}  // namespace stagecoach
