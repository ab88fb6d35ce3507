// Causal self-attention over the rows of a microbatch, and rotary positions.
//
// Threading: pure functions; a RotaryTable is const after construction.
#pragma once

#include <ATen/ATen.h>

#include "model/run_config.h"

namespace stagecoach {

struct AttentionShape {
  int64_t batch = 0, tokens = 0, heads = 0, kv_heads = 0, head_width = 0;
};

// cos and sin of position * theta^(-2j/head_width), computed in double; pairs are (j, j + head_width/2).
class RotaryTable {
 public:
  RotaryTable(int64_t max_tokens, int64_t head_width, double theta, at::Device device);
  // x: (batch * tokens) x (heads * head_width). Returns it rotated, same shape.
  at::Tensor Rotate(const at::Tensor& x, int64_t tokens, int64_t head_width) const;

 private:
  at::Tensor table_, table64_;  // max_tokens x 2 x head_width/2: cos, sin
};

// q: rows x (heads * head_width); k, v: rows x (kv_heads * head_width); each kv head serves heads/kv_heads query heads.
// Returns rows x (heads * head_width). Always the same kernel on one device: bits do not depend on sizes elsewhere.
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape);

}  // namespace stagecoach
