// The fake run (worker/compute/fake_stage_executor.h) as one process would compute it: a loop over microbatches with
// the version rule, and nothing of the engine. A pipeline of fake stages must end with the same numbers.
//
// Threading: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/run_config.h"

namespace stagecoach {

struct FakeReferenceResult {
  std::vector<std::vector<uint64_t>> weights;            // [unit][version 0..steps]
  std::vector<uint64_t> moments;                         // [unit]
  std::vector<double> losses;                            // mean of each step
  std::vector<std::pair<uint64_t, double>> evaluations;  // steps done, mean nats a token
  std::vector<double> clips, square_sums;                // of each step; with stage-wise clipping of stage 0
  std::vector<std::string> weights_sha256;               // [unit], of the final version, as in a checkpoint
  std::string weight_hash;                               // over weights_sha256 in unit order
};

// Runs steps 0..steps-1 of config.
FakeReferenceResult RunFakeReference(const RunConfig& config, uint64_t steps);

}  // namespace stagecoach
