#include "coordinator/domain/planning/dual_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace stagecoach {
namespace {

constexpr int kSteps = 150;         // of multiplicative weights; further ones gain less than 1 % of the bound
constexpr int kRoughSteps = 20;     // where the bound only has to be of the right size
constexpr double kRounding = 1e-9;  // sums of doubles
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// Where the ranges of a worker that begin at a point must end at the latest for its memory; [worker][point].
std::vector<uint32_t> FurthestEnds(const CostModel& costs) {
  const uint32_t last = costs.last_point();
  std::vector<uint32_t> ends;
  ends.reserve(size_t{costs.num_workers()} * last);
  for (uint32_t worker = 0; worker < costs.num_workers(); ++worker) {
    uint32_t end = 0;
    for (uint32_t begin = 0; begin < last; ++begin) {
      end = std::max(end, begin);
      while (end < last && costs.Fits(worker, begin, end + 1)) ++end;
      ends.push_back(end);
    }
  }
  return ends;
}

double DualBound(const CostModel& costs, int steps) {
  const uint32_t last = costs.last_point(), num_workers = costs.num_workers();
  const std::vector<uint32_t> ends = FurthestEnds(costs);
  std::vector<double> price(last, 1.0 / last), sum(last + 1), covered(last), row(last + 1);
  double bound = kUnlimited;
  for (int step = 0; step < steps; ++step) {
    for (uint32_t p = 0; p < last; ++p) sum[p + 1] = sum[p] + price[p];
    std::fill(covered.begin(), covered.end(), 0);
    double total = 0;
    for (uint32_t worker = 0; worker < num_workers; ++worker) {
      const double reliability = costs.Reliability(costs.fleet().workers[worker].failures_per_hour);
      double best = 0;
      uint32_t best_begin = 0, best_end = 0;
      for (uint32_t begin = 0; begin < last; ++begin) {
        const uint32_t furthest = ends[size_t{worker} * last + begin];
        for (uint32_t end = begin + 1; end <= furthest; ++end) {
          row[end] = (sum[end] - sum[begin]) / costs.StageSecondsUnchecked(worker, begin, end);
        }
        for (uint32_t end = begin + 1; end <= furthest; ++end) {
          if (row[end] > best) best = row[end], best_begin = begin, best_end = end;
        }
      }
      if (best == 0) continue;
      total += best * reliability;
      const double rate = reliability / costs.StageSecondsUnchecked(worker, best_begin, best_end);
      for (uint32_t p = best_begin; p < best_end; ++p) covered[p] += rate;
    }
    bound = std::min(bound, total);
    double mean = 0;
    for (uint32_t p = 0; p < last; ++p) mean += covered[p] * price[p];
    if (mean <= 0) return 0;  // no worker holds any unit
    const double rate = 0.5 / std::sqrt(1.0 + step);
    double all = 0;
    for (uint32_t p = 0; p < last; ++p) {
      price[p] *= std::exp(-rate * std::clamp((covered[p] - mean) / mean, -2.0, 2.0));
      all += price[p];
    }
    for (double& each : price) each /= all;
  }
  return bound;
}

// Whether stages of at most `seconds` could cover the model once, if ranges could be put anywhere.
bool MayCover(const CostModel& costs, const std::vector<uint32_t>& ends, double seconds) {
  const uint32_t last = costs.last_point();
  std::vector<bool> unit(last, false);
  uint64_t reach = 0;
  for (uint32_t worker = 0; worker < costs.num_workers(); ++worker) {
    uint32_t longest = 0;
    for (uint32_t begin = 0; begin < last; ++begin) {
      for (uint32_t end = ends[size_t{worker} * last + begin]; end > begin; --end) {
        if (costs.StageSecondsUnchecked(worker, begin, end) > seconds) continue;
        longest = std::max(longest, end - begin);
        for (uint32_t p = begin; p < end; ++p) unit[p] = true;
        break;
      }
    }
    reach += longest;
  }
  return reach >= last && std::find(unit.begin(), unit.end(), false) == unit.end();
}

double SingleClusterBound(const CostModel& costs) {
  const std::vector<uint32_t> ends = FurthestEnds(costs);
  double high = 1e-6;
  while (!MayCover(costs, ends, high)) {
    if (high > 1e9) return 0;
    high *= 4;
  }
  double low = high > 1e-6 ? high / 4 : 0;
  constexpr int kBisections = 20;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (MayCover(costs, ends, middle) ? high : low) = middle;
  }
  return low > 0 ? 1 / low : kUnlimited;
}

}  // namespace

double GoodputBound(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                    double stall_seconds, uint32_t clusters) {
  // A window of one microbatch needs the least memory.
  const auto costs = [&](double several) { return CostModel(model, fleet, links, {1, several, stall_seconds}); };
  if (clusters > 1) return DualBound(costs(clusters), kSteps) * (1 + kRounding);
  const CostModel alone = costs(1);
  const double single = std::min(SingleClusterBound(alone), DualBound(alone, kRoughSteps));
  if (clusters == 1 || single == 0) return single * (1 + kRounding);
  // K clusters do at most K times what one does that does not average; more than K average at (C-1)/C of K + 1 at
  // least. K is chosen such that the former is the smaller one.
  const auto most = static_cast<double>(fleet.workers.size());
  const double k = std::clamp(std::floor(DualBound(costs(most), kRoughSteps) / single), 1.0, std::max(1.0, most - 1));
  return std::max(k * single, DualBound(costs(k + 1), kSteps)) * (1 + kRounding);
}

}  // namespace stagecoach
