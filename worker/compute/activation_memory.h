// Whether a stage keeps the activations of its microbatches in flight or recomputes them (recompute: auto). The choice
// changes time and memory, never a bit of the result.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "model/run_config.h"

namespace stagecoach {

// Bytes that one block keeps for the backward of one microbatch (an estimate from the shapes).
uint64_t BlockActivationBytes(const RunConfig& config);

// True: recompute. `blocks` of the stage, `window` microbatches in flight.
bool ChooseRecompute(const RunConfig& config, uint64_t blocks, uint64_t window, uint64_t available_bytes);

}  // namespace stagecoach
