#include "coordinator/domain/division_choice.h"

#include <algorithm>
#include <limits>

namespace stagecoach {
namespace {

// Predictions and latencies are not finer than that.
constexpr double kSameSpeed = 0.98, kSameLatency = 1.05;

}  // namespace

size_t BestDivision(const std::vector<DivisionFigures>& divisions) {
  double fastest = 0, shortest = std::numeric_limits<double>::infinity();
  for (const DivisionFigures& each : divisions) fastest = std::max(fastest, each.tokens_per_second);
  const auto fast = [&](const DivisionFigures& each) { return each.tokens_per_second >= kSameSpeed * fastest; };
  for (const DivisionFigures& each : divisions) {
    if (fast(each)) shortest = std::min(shortest, each.loop_seconds);
  }
  size_t best = divisions.size();
  for (size_t i = 0; i < divisions.size(); ++i) {
    if (!fast(divisions[i]) || divisions[i].loop_seconds > kSameLatency * shortest) continue;
    if (best == divisions.size() || divisions[i].clusters < divisions[best].clusters) best = i;
  }
  return best;
}

}  // namespace stagecoach
