#include "coordinator/domain/planning/dual_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace stagecoach {
namespace {

constexpr int kSteps = 150;         // of multiplicative weights; further ones gain less than 1 % of the bound
constexpr int kRoughSteps = 20;     // where the bound only has to be of the right size
constexpr uint32_t kSample = 1000;  // workers on which prices are found; any prices give a bound
constexpr int kFurtherSteps = 15;   // from prices that were good for the sample, or for other terms of averaging
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

// The bound for prices of units, which get better with every step.
class PricedBound {
 public:
  // `step`: how many were made before from which `prices` come.
  PricedBound(const CostModel& costs, std::vector<double> prices, int step)
      : costs_(costs), ends_(FurthestEnds(costs)), price_(std::move(prices)), step_(step) {}
  const std::vector<double>& prices() const { return price_; }

  // Of every `stride`th worker: the least that was met, whose prices are kept. 0: they hold no unit.
  double Improve(uint32_t stride, int steps) {
    double bound = kUnlimited;
    std::vector<double> best;
    for (int step = 0; step < steps; ++step) {
      const double total = Value(stride);
      if (total <= 0) return 0;
      if (total < bound) bound = total, best = price_;
      Reprice();
    }
    price_ = std::move(best);
    return bound;
  }

 private:
  // Sum of the workers' best earnings; covered_: how often each unit is then done in a second.
  double Value(uint32_t stride) {
    const uint32_t last = costs_.last_point();
    std::vector<double> sum(last + 1), row(last + 1);
    for (uint32_t p = 0; p < last; ++p) sum[p + 1] = sum[p] + price_[p];
    covered_.assign(last, 0);
    double total = 0;
    for (uint32_t worker = 0; worker < costs_.num_workers(); worker += stride) {
      const double reliability = costs_.Reliability(costs_.fleet().workers[worker].failures_per_hour);
      double best = 0;
      uint32_t best_begin = 0, best_end = 0;
      for (uint32_t begin = 0; begin < last; ++begin) {
        const uint32_t furthest = ends_[size_t{worker} * last + begin];
        for (uint32_t end = begin + 1; end <= furthest; ++end) {
          row[end] = (sum[end] - sum[begin]) / costs_.StageSecondsUnchecked(worker, begin, end);
        }
        for (uint32_t end = begin + 1; end <= furthest; ++end) {
          if (row[end] > best) best = row[end], best_begin = begin, best_end = end;
        }
      }
      if (best == 0) continue;
      total += best * reliability;
      const double rate = reliability / costs_.StageSecondsUnchecked(worker, best_begin, best_end);
      for (uint32_t p = best_begin; p < best_end; ++p) covered_[p] += rate;
    }
    return total;
  }

  // Units that are done more often than the mean become cheaper.
  void Reprice() {
    double mean = 0;
    for (size_t p = 0; p < price_.size(); ++p) mean += covered_[p] * price_[p];
    const double rate = 0.5 / std::sqrt(1.0 + step_++);
    double all = 0;
    for (size_t p = 0; p < price_.size(); ++p) {
      price_[p] *= std::exp(-rate * std::clamp((covered_[p] - mean) / mean, -2.0, 2.0));
      all += price_[p];
    }
    for (double& each : price_) each /= all;
  }

  const CostModel& costs_;
  const std::vector<uint32_t> ends_;
  std::vector<double> price_, covered_;
  int step_;
};

std::vector<double> EvenPrices(const CostModel& costs) {
  return std::vector<double>(costs.last_point(), 1.0 / costs.last_point());
}

// `prices`, if given, become the best that were met.
double DualBound(const CostModel& costs, int steps, std::vector<double>* prices = nullptr) {
  PricedBound bound(costs, EvenPrices(costs), 0);
  const bool many = costs.num_workers() > 2 * kSample;
  if (many) bound.Improve(costs.num_workers() / kSample, steps);
  const double least = bound.Improve(1, many ? kFurtherSteps : steps);
  if (prices != nullptr) *prices = bound.prices();
  return least;
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
  std::vector<double> prices;
  const double all_average = DualBound(costs(most), kSteps, &prices);
  const double k = std::clamp(std::floor(all_average / single), 1.0, std::max(1.0, most - 1));
  const double several = PricedBound(costs(k + 1), std::move(prices), kSteps).Improve(1, kFurtherSteps);
  return std::max(k * single, several) * (1 + kRounding);
}

}  // namespace stagecoach
