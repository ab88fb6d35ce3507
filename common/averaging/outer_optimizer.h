// What is done with the averaged difference D = sum_c w_c (theta - W_c) of a round.
//
//   plain mean   theta' = sum_c w_c W_c                       (eta 1, mu 0; Ravnest, 2401.01728)
//   sgd          v = mu v + D;  theta' = theta - eta v
//   nesterov     v = mu v + D;  theta' = theta - eta (D + mu v)                            (DiLoCo, 2311.08105)
//
// The plain mean is computed as the mean of weights where the wire is fp32: theta - (theta - W) differs from W in
// rounding, so averaging equal weights would change them.
//
// Threading: pure functions. Arithmetic: fp32, element by element, the same bits on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace stagecoach {

struct OuterOptimizer {
  enum class Kind : uint8_t { kPlainMean = 1, kSgd = 2, kNesterov = 3 };
  Kind kind = Kind::kPlainMean;
  float eta = 1.0f;  // eta_out; 1 for the plain mean
  float mu = 0.0f;   // 0 for the plain mean
  bool HasMomentum() const { return kind != Kind::kPlainMean && mu > 0; }
};

// H >= 100 and at least 50 rounds: Nesterov 0.7/0.9. 30 <= H < 100, at least 50 rounds: 0.4/0.9. Otherwise the plain
// mean.
OuterOptimizer DefaultOuterOptimizer(uint64_t steps_between_rounds, uint64_t rounds);

// Why this optimizer fits the run badly; empty if nothing speaks against it. rounds * (1 - mu) < 10: the momentum does
// not settle.
std::string OuterOptimizerWarning(const OuterOptimizer& optimizer, uint64_t rounds);

// theta and v in place. v is empty unless HasMomentum. For the plain mean: theta - D (quantised wires).
void OuterStep(const OuterOptimizer& optimizer, absl::Span<const float> mean_delta, absl::Span<float> theta,
               absl::Span<float> v);

}  // namespace stagecoach
