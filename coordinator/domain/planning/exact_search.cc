#include "coordinator/domain/planning/exact_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "coordinator/domain/planning/partition_search.h"

namespace stagecoach {
namespace {

constexpr double kTie = 1 + 1e-9;

std::vector<uint32_t> AllWorkers(const Fleet& fleet) {
  std::vector<uint32_t> workers(fleet.workers.size());
  std::iota(workers.begin(), workers.end(), 0);
  return workers;
}

void Keep(Division division, const PlanAssumptions& assumptions, FoundPlan* best) {
  best->bound = std::max(best->bound, division.bound);
  if (division.goodput <= best->goodput * kTie) return;
  best->clusters = std::move(division.clusters);
  best->assumptions = assumptions;
  best->goodput = division.goodput;
}

// Everything with at most `window` microbatches in flight.
class WindowSearch {
 public:
  WindowSearch(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
               const PlannerOptions& options, uint32_t window)
      : model_(model), fleet_(fleet), links_(links), options_(options), window_(window) {}

  // No plan of several clusters does more: averaging among two costs least.
  double Bound() {
    two_costs_ =
        std::make_unique<CostModel>(model_, fleet_, links_, PlanAssumptions{window_, 2, options_.stall_seconds});
    two_ = std::make_unique<PartitionSearch>(*two_costs_, AllWorkers(fleet_));
    return two_->Bound();
  }
  void Exactly(double averaging_clusters, uint32_t clusters, FoundPlan* best) const {
    const PlanAssumptions assumptions{window_, averaging_clusters, options_.stall_seconds};
    const CostModel costs(model_, fleet_, links_, assumptions);
    Keep(PartitionSearch(costs, AllWorkers(fleet_)).Best(clusters), assumptions, best);
  }
  // Two clusters or more; after Bound().
  void Several(FoundPlan* best) {
    const std::vector<double> bounds = two_->Bounds();
    std::vector<uint32_t> order(bounds.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return bounds[a] > bounds[b]; });
    for (const uint32_t clusters : order) {
      if (bounds[clusters] <= best->goodput * kTie) break;
      if (clusters >= 2) Exactly(clusters, clusters, best);
    }
  }

 private:
  const PlanModel& model_;
  const Fleet& fleet_;
  const std::shared_ptr<const LinkCosts>& links_;
  const PlannerOptions& options_;
  const uint32_t window_;
  std::unique_ptr<CostModel> two_costs_;
  std::unique_ptr<PartitionSearch> two_;
};

}  // namespace

std::vector<uint32_t> WindowsTried(const PlanModel& model, const Fleet& fleet,
                                   const std::shared_ptr<const LinkCosts>& links) {
  std::vector<uint64_t> limits;
  for (const FleetWorker& worker : fleet.workers) {
    if (worker.memory_bytes > 0) limits.push_back(worker.memory_bytes);
  }
  std::sort(limits.begin(), limits.end());
  const Fleet nobody;
  const CostModel least(model, nobody, links, {1, 1, 0});
  std::vector<uint32_t> windows;
  for (uint32_t window = LargestWindow(model); window > 0; window /= 2) {
    windows.push_back(window);
    const CostModel costs(model, nobody, links, {window, 1, 0});
    bool counts = false;
    for (uint32_t a = 0; a < costs.last_point() && !counts; ++a) {
      for (uint32_t b = a + 1; b <= costs.last_point() && !counts; ++b) {
        const auto holds = std::lower_bound(limits.begin(), limits.end(), least.MemoryBytes(a, b));
        counts = holds != limits.end() && *holds < costs.MemoryBytes(a, b);
      }
    }
    if (!counts) break;
  }
  return windows;
}

FoundPlan ExactSearch(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                      const PlannerOptions& options) {
  FoundPlan best;
  std::vector<std::pair<double, std::unique_ptr<WindowSearch>>> several;
  for (const uint32_t window : WindowsTried(model, fleet, links)) {
    auto search = std::make_unique<WindowSearch>(model, fleet, links, options, window);
    if (options.clusters > 0) {
      search->Exactly(options.clusters, options.clusters, &best);
    } else if (std::isinf(model.steps_per_round)) {
      search->Exactly(1, 0, &best);  // without rounds the number of clusters costs nothing
    } else {
      search->Exactly(1, 1, &best);
      const double bound = search->Bound();
      several.emplace_back(bound, std::move(search));
    }
  }
  std::stable_sort(several.begin(), several.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [bound, search] : several) {
    if (bound > best.goodput * kTie) search->Several(&best);
  }
  return best;
}

}  // namespace stagecoach
