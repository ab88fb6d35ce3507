// Learning rates as functions of the step only, so that a late joiner or a replay agrees.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/stage_optimizer.h"

namespace stagecoach {
namespace {

constexpr double kLowest = 0.1;        // eta_min / eta
constexpr double kDecayShare = 0.2;    // WSD: the last fifth
constexpr double kOneCycleRise = 0.3;  // share of the steps that rise
constexpr double kOneCycleStart = 1.0 / 25, kOneCycleEnd = 1.0 / 250000;

// From `from` at share 0 to `to` at share 1, along half a cosine.
double CosineBetween(double from, double to, double share) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double OneCycle(double peak, double step, double total) {
  const double rise = std::max(1.0, std::floor(kOneCycleRise * total));
  if (step < rise) return CosineBetween(kOneCycleStart * peak, peak, step / rise);
  return CosineBetween(peak, kOneCycleEnd * peak, (step - rise) / std::max(1.0, total - rise));
}

}  // namespace

double RateAt(const OptimizerConfig& config, double peak, uint64_t step_index) {
  const auto warmup = static_cast<double>(config.warmup_steps);
  const auto total = static_cast<double>(config.total_steps);
  const double step = std::min(static_cast<double>(step_index), total);
  if (config.rate_schedule == RateSchedule::kOneCycle) return OneCycle(peak, step, total);
  if (step < warmup) return peak * (step + 1) / warmup;
  const double share = (step - warmup) / std::max(1.0, total - warmup);
  switch (config.rate_schedule) {
    case RateSchedule::kCosine:
      return CosineBetween(peak, kLowest * peak, share);
    case RateSchedule::kLinear:
      return peak + (kLowest * peak - peak) * share;
    case RateSchedule::kWsd: {
      const double decay_start = std::max(warmup, std::floor((1 - kDecayShare) * total));
      if (step < decay_start) return peak;
      return peak * (1 - std::sqrt((step - decay_start) / std::max(1.0, total - decay_start)));
    }
    case RateSchedule::kConstant:
    case RateSchedule::kOneCycle:
      break;
  }
  return peak;
}

}  // namespace stagecoach
