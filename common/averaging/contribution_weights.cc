#include "common/averaging/contribution_weights.h"

#include <algorithm>

namespace stagecoach {

std::vector<float> ContributionWeights(WeightRule rule, absl::Span<const Contribution> contributions) {
  std::vector<double> shares;
  double sum = 0;
  for (const Contribution& contribution : contributions) {
    const double tokens = static_cast<double>(contribution.tokens);
    double share = tokens * contribution.factor;
    if (rule == WeightRule::kTokensSquaredOverSteps) {
      share *= tokens / static_cast<double>(std::max<uint64_t>(1, contribution.steps));
    }
    shares.push_back(share);
    sum += share;
  }
  std::vector<float> weights;
  for (const double share : shares) weights.push_back(sum > 0 ? static_cast<float>(share / sum) : 0.0f);
  return weights;
}

}  // namespace stagecoach
