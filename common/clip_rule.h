// The formula of gradient clipping, shared by the pipeline and the single-process oracle so that both use the same
// bits.
//   c_t = min(1, clip / (sqrt(S) + 1e-6)),   S = sum of the squares of the averaged gradient; S not finite: the step is
// skipped. Stage-wise clipping uses clip / sqrt(number of stages) at every stage.
//
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

// S: the parameters' square sums added one by one in canonical order, so that the place of the cuts does not matter.
inline double SumInOrder(absl::Span<const double> square_norms) {
  double sum = 0;
  for (const double value : square_norms) sum += value;
  return sum;
}

// c_t for a finite S.
inline double ClipFactor(double square_sum, double clip_norm) {
  return std::min(1.0, clip_norm / (std::sqrt(square_sum) + 1e-6));
}

inline double StageClipNorm(double clip_norm, uint32_t num_stages) {
  return clip_norm / std::sqrt(static_cast<double>(num_stages));
}

}  // namespace stagecoach
