// Samples tokens from a whole model, one at a time, recomputing a sliding window (meant for small models).
//
// Threading: one compute thread. Errors: torch exceptions (c10::Error) pass through.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/stage_model.h"

namespace stagecoach {

struct GenerateOptions {
  int64_t count = 100;       // new tokens
  int64_t window = 256;      // most tokens that the model sees: at most the model's max_tokens
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 50;        // 0: all
  uint64_t seed = 1;
};

// `model` has all units, `parameters` are its views. Returns the new tokens only. Precondition: prompt is not empty.
std::vector<int64_t> Generate(const StageModel& model, const std::vector<at::Tensor>& parameters,
                              const std::vector<int64_t>& prompt, const GenerateOptions& options);

}  // namespace stagecoach
