// The fixed parts of a subspace model that every stage makes for itself: basis U (d x k, U'U = I) and anchor rows A[t].
//   X = c U' + A[ids] (+ fixed positions with GPT-2 blocks)
// U: Gaussian-like matrix, modified Gram-Schmidt twice in double in a fixed order, positive diagonal, rounded to fp32.
// Anchors are regenerated from the counter RNG; a table is kept while it is small, else the rows of recent tokens.
//
// Threading: one compute thread (the cache of rows changes under const methods).
#pragma once

#include <ATen/ATen.h>

#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/counter_rng.h"
#include "model/run_config.h"

namespace stagecoach {

class Subspace {
 public:
  Subspace(const ModelConfig& config, uint64_t seed, at::Device device);

  // What X has besides c U': rows for ids (B x T), (B*T) x d, in `type`.
  at::Tensor FixedRows(const at::Tensor& ids, at::ScalarType type) const;
  // X = c U' + rows.
  at::Tensor Materialise(const at::Tensor& coordinates, const at::Tensor& rows) const;

  const at::Tensor& transposed_basis() const { return transposed_basis_; }  // k x d
  std::string BasisSha256() const;
  std::string AnchorSha256() const;

 private:
  const float* AnchorRow(int64_t token) const;

  int64_t width_, vocabulary_;
  bool has_positions_;
  at::Device device_;
  CounterRng anchor_rng_, position_rng_;
  at::Tensor transposed_basis_, transposed_basis64_;  // the second: for models in double (gradient checks)
  at::Tensor positions_;                              // max_tokens x d, with GPT-2 blocks

  // Anchors in host memory: all of them, or (vocabulary * width too large) a bounded number of recent rows.
  bool whole_table_;
  int64_t capacity_ = 0;
  mutable at::Tensor rows_;
  mutable std::list<std::pair<int64_t, int64_t>> recent_;  // (token, slot), newest first
  mutable std::unordered_map<int64_t, std::list<std::pair<int64_t, int64_t>>::iterator> slots_;
};

// U as d x k fp32: a function of (seed, d, k).
at::Tensor MakeBasis(uint64_t seed, int64_t width, int64_t rank);

}  // namespace stagecoach
