#include "coordinator/domain/planning/cluster_counts.h"

#include <set>

namespace stagecoach {

std::vector<ClusterCount> OtherClusterCounts(const PlanModel& model, const Fleet& fleet, const PlannerOptions& options,
                                             uint32_t chosen) {
  std::vector<ClusterCount> counts;
  if (chosen == 0 || fleet.workers.size() > kMostWorkersCompared) return counts;
  PlannerOptions asked = options;
  asked.explain = false;
  for (const uint32_t clusters : std::set<uint32_t>{1, chosen / 2, chosen - 1, chosen + 1, 2 * chosen}) {
    if (clusters == 0 || clusters == chosen || clusters > fleet.workers.size()) continue;
    asked.clusters = clusters;
    const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, asked);
    ClusterCount& count = counts.emplace_back();
    count.clusters = clusters;
    if (plan.ok()) {
      count.goodput = plan->goodput;
    } else {
      count.why_not = std::string(plan.status().message());
    }
  }
  return counts;
}

}  // namespace stagecoach
