#include "coordinator/domain/planning/planner.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/dual_bound.h"
#include "coordinator/domain/planning/exact_search.h"
#include "coordinator/domain/planning/large_fleet_search.h"
#include "coordinator/domain/planning/plan_explanation.h"
#include "coordinator/domain/planning/standbys.h"
#include "coordinator/domain/planning/subset_table.h"

namespace stagecoach {
namespace {

constexpr uint32_t kMostExactWorkers = 20;  // 3^20 steps a division: some seconds
// Floats of the subset tables; below it a plan counts as the best.
constexpr double kProven = 1 - 3e-6;

// The same fleet in the order of names, so that ties do not depend on who registered first.
Fleet ByName(const Fleet& fleet, const std::vector<uint32_t>& order) {
  std::vector<uint32_t> position(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  Fleet sorted;
  sorted.regions = fleet.regions;
  for (const uint32_t worker : order) sorted.workers.push_back(fleet.workers[worker]);
  for (const auto& [pair, link] : fleet.links) sorted.links[{position[pair.first], position[pair.second]}] = link;
  return sorted;
}

void Rename(const std::vector<uint32_t>& order, FleetPlan* plan) {
  for (PlannedCluster& cluster : plan->clusters) {
    for (PlannedStage& stage : cluster.stages) stage.worker = order[stage.worker];
  }
  std::sort(plan->clusters.begin(), plan->clusters.end(),
            [](const PlannedCluster& a, const PlannedCluster& b) { return a.stages[0].worker < b.stages[0].worker; });
  for (uint32_t& worker : plan->unused) worker = order[worker];
  std::sort(plan->unused.begin(), plan->unused.end());
  for (PlannedStandby& standby : plan->standbys) {
    standby.worker = order[standby.worker];
    standby.protects = order[standby.protects];
  }
  std::sort(plan->standbys.begin(), plan->standbys.end(),
            [](const PlannedStandby& a, const PlannedStandby& b) { return a.worker < b.worker; });
}

}  // namespace

absl::StatusOr<FleetPlan> PlanFleet(const PlanModel& model, const Fleet& fleet, const PlannerOptions& options) {
  if (const absl::Status good = CheckFacts(model, fleet); !good.ok()) return good;
  std::vector<uint32_t> order(fleet.workers.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return fleet.workers[a].name < fleet.workers[b].name; });
  const Fleet sorted = ByName(fleet, order);
  if (options.clusters > sorted.workers.size()) return WhyThereIsNoPlan(model, sorted, options.clusters);
  const auto links = std::make_shared<const LinkCosts>(sorted, model.frame_bytes);
  const bool small = sorted.workers.size() <= std::min(options.exact_workers, kMostExactWorkers);
  const FoundPlan found =
      small ? ExactSearch(model, sorted, links, options) : LargeFleetSearch(model, sorted, links, options);
  if (found.clusters.empty()) return WhyThereIsNoPlan(model, sorted, options.clusters);
  const CostModel costs(model, sorted, links, found.assumptions);
  FleetPlan plan = EvaluatePlan(costs, found.clusters);
  plan.bound = GoodputBound(model, sorted, links, options.stall_seconds, options.clusters);
  const bool every_cut = PointsTried(costs).size() == costs.last_point() + 1;
  if (found.bound > 0 && every_cut) {
    plan.bound = std::max(plan.goodput, std::min(plan.bound, found.bound));
    plan.exact = plan.goodput >= plan.bound * kProven;
    if (plan.exact) plan.bound = plan.goodput;
  }
  PlanAssumptions assumptions = found.assumptions;
  assumptions.clusters = static_cast<double>(plan.clusters.size());
  const CostModel own(model, sorted, links, assumptions);
  plan.standbys = AssignStandbys(own, plan, options.standby_stall_seconds);
  if (options.explain) plan.explanation = ExplainPlan(own, plan);
  Rename(order, &plan);
  return plan;
}

}  // namespace stagecoach
