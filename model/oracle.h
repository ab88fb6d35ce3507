// The single-process reference of a run: what the pipeline must have computed, to the bit. A loop over microbatches
// with the version rule, a dictionary of weight versions, the same codecs as functions at the same cuts, sums in index
// order. Shares layers and optimizer with the worker and nothing of its engine (no windows, no buffers that rotate, no
// frames).
//
// Threading: one thread; call ConfigureTorch before. Errors: torch exceptions (c10::Error) pass through.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/run_config.h"

namespace stagecoach {

// Fills B x T ids and labels of training microbatch `index` (global: RunConfig::GlobalMicrobatch), or of evaluation
// microbatch `index`.
using OracleBatches =
    std::function<void(uint64_t index, bool evaluation, absl::Span<int64_t> ids, absl::Span<int64_t> labels)>;

struct OracleOptions {
  uint64_t stop_after = 0;  // steps; 0: all of config.total_steps
  // Tests: the output of this stage (the loss at the last one) becomes NaN in microbatch n.
  struct Injection {
    uint64_t n = 0;
    uint32_t stage = 0;
  };
  std::optional<Injection> inject_nan;
};

struct OracleEvaluation {
  uint64_t after_step = 0;
  double loss = 0;  // nats per token
};

struct OracleResult {
  std::vector<double> losses;  // of each step: mean over its microbatches; NaN if one was not finite
  std::vector<std::vector<double>>
      clips;                            // of each step: c_t, one for all stages, or one a stage (stage-wise clipping)
  std::vector<double> square_sums;      // of each step: S of the whole model
  std::vector<uint64_t> skipped_steps;  // steps that at least one stage did not apply
  std::vector<OracleEvaluation> evaluations;
  // Final state, fp32 little endian: "w.<lag>.<parameter>" for every live version (lag 0 = newest), "m.", "v.", "u.".
  std::map<std::string, std::string> state;
  std::vector<std::string> weights_sha256;  // of each unit: newest parameters in canonical order
  std::string weight_hash;                  // SHA-256 over those hex strings in unit order
};

OracleResult RunOracle(const RunConfig& config, const OracleBatches& batches, const OracleOptions& options = {});

// All clusters of a run, with the rounds in which they average: one configuration and one result for each, in order.
std::vector<OracleResult> RunClusterOracle(const std::vector<RunConfig>& configs, const OracleBatches& batches,
                                           const OracleOptions& options = {});

}  // namespace stagecoach
