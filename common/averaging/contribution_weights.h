// How much each cluster's contribution counts in a round: w_c, summing to 1 over the contributors.
//
//   tokens               w_c ~ tokens since its last contribution (FedAvg, 1602.05629)
//   tokens^2 / steps     (2604.21428) the same as long as all clusters process equally many tokens a step
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace stagecoach {

enum class WeightRule : uint8_t { kTokens = 1, kTokensSquaredOverSteps = 2 };

struct Contribution {
  uint64_t tokens = 0;  // since the cluster's last contribution
  uint64_t steps = 0;   // likewise
  double factor = 1.0;  // 0.5 for a contribution two rounds late
};

// One weight for each contribution, in the same order. A cluster without tokens gets 0: it receives the result and does
// not affect it. All zero if nobody has tokens.
std::vector<float> ContributionWeights(WeightRule rule, absl::Span<const Contribution> contributions);

}  // namespace stagecoach
