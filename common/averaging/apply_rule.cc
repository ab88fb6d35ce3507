#include "common/averaging/apply_rule.h"

#include <cstring>

namespace stagecoach {

void ApplyRound(MergeRule rule, absl::Span<const float> theta, absl::Span<const float> pinned,
                absl::Span<float> weights) {
  const size_t count = weights.size();
  switch (rule) {
    case MergeRule::kAdditive:
      for (size_t i = 0; i < count; ++i) weights[i] = weights[i] + (theta[i] - pinned[i]);
      break;
    case MergeRule::kBlend:
      for (size_t i = 0; i < count; ++i) weights[i] = kBlendShare * weights[i] + (1 - kBlendShare) * theta[i];
      break;
    case MergeRule::kReplace:
      if (count > 0) std::memcpy(weights.data(), theta.data(), count * sizeof(float));
      break;
  }
}

}  // namespace stagecoach
