// One decoder block as a function of its weights and the residual stream: attention and feed-forward, Llama or GPT-2
// style, pre-norm or reordered norm, dense or writing coordinates.
//   pre-norm:        s = s + f(n(X))                       n: RMSNorm with gain, or LayerNorm
//   reordered norm:  s = s + f(X) / sqrt(|f(X)|^2/d + eps)
// s is the stream (X itself, or coordinates c with X = c U' + fixed rows formed where a sub-layer reads it).
//
// Threading: pure functions of their arguments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/attention.h"
#include "model/run_config.h"
#include "model/subspace.h"

namespace stagecoach {

// Hands out a stage's parameters in canonical order. Take* follow ParameterLayout: a change here is a change there.
class ParameterCursor {
 public:
  ParameterCursor(const ModelConfig& config, const std::vector<at::Tensor>& parameters)
      : config_(config), parameters_(parameters) {}
  const at::Tensor& Take() { return parameters_.at(next_++); }
  // The bias behind a weight or gain: GPT-2 only, else undefined.
  at::Tensor TakeBias() { return config_.architecture == Architecture::kGpt2 ? Take() : at::Tensor(); }

 private:
  const ModelConfig& config_;
  const std::vector<at::Tensor>& parameters_;
  size_t next_ = 0;
};

// What the blocks of one microbatch share.
struct BlockContext {
  const ModelConfig& config;
  const RotaryTable* rotary = nullptr;  // null with GPT-2
  const Subspace* subspace = nullptr;   // null in a dense model
  at::Tensor fixed_rows;                // A[ids] (+ positions), with a subspace
  int64_t batch = 0, tokens = 0;
  uint64_t seed = 0, n = 0;  // dropout
  bool training = true;
};

// gain * norm(x) of the architecture, taking its parameters from the cursor.
at::Tensor GainNorm(const ModelConfig& config, ParameterCursor* cursor, const at::Tensor& x);

// Runs block `unit` on `stream`. constrained: the stream is coordinates.
at::Tensor RunBlock(const BlockContext& context, ParameterCursor* cursor, uint32_t unit, bool constrained,
                    const at::Tensor& stream);

}  // namespace stagecoach
