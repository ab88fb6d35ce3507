// A whole pipeline in one process without threads, links or clocks: stage cores of worker/domain, real executors,
// frames handed over directly. Which stage does its next thing is drawn from a seed, so every seed is another
// interleaving.
//
// Threading: a pure function (blocking on the executors). Errors: those of the cores and executors; INTERNAL when
// nothing can go on before all stages have finished.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/run_config.h"
#include "worker/compute/executor_factory.h"
#include "worker/domain/stage_core.h"

namespace stagecoach {

struct LocalPipelineOptions {
  RunConfig config;
  std::vector<uint32_t> windows;  // one per stage
  uint64_t interleaving_seed = 1;
  uint64_t first_step = 0, end_step = 0;  // end_step 0: total_steps
  std::string checkpoint_dir;             // of first_step
  StagePolicy policy = StagePolicy::kAlternate;
  std::function<absl::StatusOr<std::unique_ptr<StageExecutor>>(const ExecutorOptions&)> create_executor;
  // The activation of this microbatch leaves this stage as a frame that is not finite.
  struct Injection {
    uint64_t n = 0;
    uint32_t stage = 0;
  };
  std::optional<Injection> inject_nonfinite;
};

struct LocalPipelineResult {
  std::vector<double> losses;                            // mean of each step from first_step on
  std::vector<std::pair<uint64_t, double>> evaluations;  // steps done, nats a token
  std::vector<std::vector<double>> clips;                // of each step; one, or one a stage (stage-wise clipping)
  std::vector<double> square_sums;                       // as stage 0 reported them
  std::vector<uint64_t> skipped_steps;
  std::map<uint64_t, std::map<uint32_t, CheckpointUnit>> checkpoints;  // step -> unit
};

absl::StatusOr<LocalPipelineResult> RunLocalPipeline(const LocalPipelineOptions& options);

// Tensors of a checkpoint by name, as OracleResult::state holds them.
std::map<std::string, std::string> StateOf(const std::map<uint32_t, CheckpointUnit>& checkpoint);

}  // namespace stagecoach
