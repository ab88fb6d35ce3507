#include "common/averaging/outer_optimizer.h"

#include "absl/strings/str_cat.h"

namespace stagecoach {

OuterOptimizer DefaultOuterOptimizer(uint64_t steps_between_rounds, uint64_t rounds) {
  constexpr uint64_t kEnoughRounds = 50;  // below, Nesterov's total effect eta/(1 - mu) is not reached
  if (rounds < kEnoughRounds || steps_between_rounds < 30) return {};
  return {OuterOptimizer::Kind::kNesterov, steps_between_rounds >= 100 ? 0.7f : 0.4f, 0.9f};
}

std::string OuterOptimizerWarning(const OuterOptimizer& optimizer, uint64_t rounds) {
  if (!optimizer.HasMomentum() || static_cast<double>(rounds) * (1.0 - static_cast<double>(optimizer.mu)) >= 10) {
    return "";
  }
  return absl::StrCat(
      "the outer momentum does not settle within the run: rounds * (1 - mu) is below 10; use the plain "
      "mean or more rounds: rounds=",
      rounds, " mu=", optimizer.mu);
}

void OuterStep(const OuterOptimizer& optimizer, absl::Span<const float> mean_delta, absl::Span<float> theta,
               absl::Span<float> v) {
  const float eta = optimizer.eta, mu = optimizer.mu;
  const size_t count = theta.size();
  if (!optimizer.HasMomentum()) {
    for (size_t i = 0; i < count; ++i) theta[i] = theta[i] - eta * mean_delta[i];
  } else if (optimizer.kind == OuterOptimizer::Kind::kSgd) {
    for (size_t i = 0; i < count; ++i) {
      v[i] = mu * v[i] + mean_delta[i];
      theta[i] = theta[i] - eta * v[i];
    }
  } else {
    for (size_t i = 0; i < count; ++i) {
      v[i] = mu * v[i] + mean_delta[i];
      theta[i] = theta[i] - eta * (mean_delta[i] + mu * v[i]);
    }
  }
}

}  // namespace stagecoach
