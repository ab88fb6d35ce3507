#include "coordinator/domain/planning/chain_cuts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "coordinator/domain/planning/latency_search.h"

namespace stagecoach {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Folds stages and edges into a value: their maximum, or their sum where none exceeds a cap.
struct Fold {
  bool sum = false;
  double cap = kInfinity;

  double Stage(const CostModel& costs, uint32_t worker, uint32_t a, uint32_t b) const {
    const double seconds = costs.StageSeconds(worker, a, b);
    if (seconds > cap) return kInfinity;
    return sum ? costs.LoopSeconds(worker, a, b) : seconds;
  }
  double Edge(const CostModel& costs, uint32_t i, uint32_t j) const {
    const EdgeCost edge = costs.Edge(i, j);
    if (edge.link_seconds > cap) return kInfinity;
    return sum ? edge.hop_seconds : edge.link_seconds;
  }
  double Join(double x, double y) const { return sum ? x + y : std::max(x, y); }
};

struct Cell {
  double value = kInfinity;
  int32_t worker = -1;  // position in the order of the stage above
  uint32_t point = 0;   // where that stage ends and this one begins
};

std::optional<ClusterDraft> Solve(const CostModel& costs, const std::vector<uint32_t>& order, const Fold& fold,
                                  bool may_skip, double* value) {
  const auto num = static_cast<int32_t>(order.size());
  const uint32_t last = costs.last_point();
  std::vector<Cell> cells(order.size() * (last + 1));
  const auto at = [&](int32_t i, uint32_t k) -> Cell& { return cells[static_cast<size_t>(i) * (last + 1) + k]; };
  for (int32_t i = 0; i < num; ++i) {
    std::vector<Cell> above(last + 1);  // the best way to reach a point before this worker starts there
    if (i == 0 || may_skip) above[0].value = 0;
    for (int32_t p = may_skip ? 0 : std::max(0, i - 1); p < i; ++p) {
      const double edge = fold.Edge(costs, order[p], order[i]);
      for (uint32_t k = 1; k < last && edge < kInfinity; ++k) {
        const double joined = fold.Join(at(p, k).value, edge);
        if (joined < above[k].value) above[k] = {joined, p, k};
      }
    }
    for (uint32_t k = 0; k < last; ++k) {
      if (above[k].value == kInfinity) continue;
      for (uint32_t end = k + 1; end <= last; ++end) {
        const double joined = fold.Join(above[k].value, fold.Stage(costs, order[i], k, end));
        if (joined < at(i, end).value) at(i, end) = {joined, above[k].worker, k};
      }
    }
  }
  int32_t best = num - 1;
  for (int32_t i = num - 1; i >= 0 && may_skip; --i) {
    if (at(i, last).value <= at(best, last).value) best = i;
  }
  *value = at(best, last).value;
  if (*value == kInfinity) return std::nullopt;
  ClusterDraft draft;
  draft.points.push_back(last);
  uint32_t point = last;
  for (int32_t i = best; i >= 0;) {
    const Cell& cell = at(i, point);
    draft.workers.push_back(order[i]);
    draft.points.push_back(cell.point);
    point = cell.point;
    i = cell.worker;
  }
  std::reverse(draft.workers.begin(), draft.workers.end());
  std::reverse(draft.points.begin(), draft.points.end());
  return draft;
}

}  // namespace

std::optional<ClusterDraft> CutChain(const CostModel& costs, const std::vector<uint32_t>& order, bool may_skip,
                                     double worth) {
  if (order.empty()) return std::nullopt;
  double bottleneck = 0;
  if (!Solve(costs, order, {false, kInfinity}, may_skip, &bottleneck)) return std::nullopt;
  if (bottleneck * worth > 1) return std::nullopt;
  return TradeLatency(costs, bottleneck, [&](double cap) {
    double loop = 0;
    return Solve(costs, order, {true, cap}, may_skip, &loop);
  });
}

}  // namespace stagecoach
