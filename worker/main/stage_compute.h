// Runs one compute effect of the stage core on the executor and collects what came out of it.
//
// Threading: RunOnExecutor blocks; call it on the compute thread. Errors: those of the executor, in the outcome.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "worker/compute/stage_executor.h"
#include "worker/domain/stage_core.h"

namespace stagecoach {

using ComputeEffect = std::variant<RunForward, RunBackward, RunForwardBackward, RunEvaluation, RunNorms, RunUpdate,
                                   RunPin, RunApply, RunCapture, RunFinishCapture>;

// Weights of the stage as clusters average them (StageExecutor::ReadWeights).
using SharedWeights = std::shared_ptr<const std::vector<float>>;

// Of one round: what the stage contributed, and what was committed.
struct RoundValues {
  SharedWeights pinned, theta;
};

struct ComputeOutcome {
  absl::Status status;
  Payload output;                     // activation or gradient for a neighbour
  double loss = 0;                    // RunForwardBackward: mean; RunEvaluation: sum over the tokens
  double learning_rate = 0;           // RunUpdate
  std::vector<double> norms;          // RunNorms
  std::vector<CheckpointUnit> units;  // RunFinishCapture
  SharedWeights pinned;               // RunPin
  double busy_seconds = 0;            // filled in by the caller, who has the clock
};

// `input`: the activation for a forward, the gradient for a backward; otherwise unused. `round`: of an update or
// RunApply that a round's result enters.
ComputeOutcome RunOnExecutor(StageExecutor& executor, const ComputeEffect& effect, const Payload& input,
                             const RoundValues& round = {});

}  // namespace stagecoach
