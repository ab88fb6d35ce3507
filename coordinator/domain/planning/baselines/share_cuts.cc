#include "coordinator/domain/planning/baselines/share_cuts.h"

namespace stagecoach {

std::vector<uint32_t> EqualCuts(const CostModel& costs, uint32_t stages) {
  const uint32_t last = costs.last_point();
  std::vector<uint32_t> points = {0};
  for (uint32_t i = 0; i < stages; ++i) points.push_back(points.back() + last / stages + (i < last % stages ? 1 : 0));
  return points;
}

std::optional<std::vector<uint32_t>> CutsByShares(const CostModel& costs, const std::vector<double>& shares) {
  const uint32_t last = costs.last_point();
  std::vector<double> parameters(last);  // of the interval behind a point
  double all = 0;
  for (uint32_t point = 0; point < last; ++point) {
    for (uint32_t u = costs.UnitAt(point); u < costs.UnitAt(point + 1); ++u) {
      parameters[point] += static_cast<double>(costs.model().units[u].parameters);
    }
    all += parameters[point];
  }
  std::vector<uint32_t> points = {0};
  for (size_t i = 0; i + 1 < shares.size(); ++i) {
    uint32_t end = points.back();
    if (end == last) return std::nullopt;
    double taken = parameters[end++];
    while (end < last && taken + parameters[end] <= shares[i] * all) taken += parameters[end++];
    points.push_back(end);
  }
  if (points.back() == last) return std::nullopt;
  points.push_back(last);
  return points;
}

std::vector<double> RoundedEqualShares(uint32_t stages) {
  // Of the two ties 1/4 rounds to even; 1/20 is above its tie in binary.
  const uint32_t tenths = stages == 4 ? 2 : (20 + stages) / (2 * stages);
  std::vector<double> shares(stages, tenths / 10.0);
  shares.back() = (10.0 - tenths * (stages - 1.0)) / 10;
  return shares;
}

}  // namespace stagecoach
