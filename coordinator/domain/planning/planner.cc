#include "coordinator/domain/planning/planner.h"

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "coordinator/domain/planning/chain_cuts.h"
#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

absl::StatusOr<FleetPlan> PlanFleet(const PlanModel& model, const Fleet& fleet, const PlannerOptions& options) {
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  const CostModel costs(model, fleet, links, {LargestWindow(model), 1, options.stall_seconds});
  std::vector<uint32_t> order(fleet.workers.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return fleet.workers[a].name < fleet.workers[b].name; });
  const std::optional<ClusterDraft> draft = CutChain(costs, order, true);
  if (!draft) return absl::ResourceExhaustedError("the model does not fit these workers");
  return EvaluatePlan(costs, {*draft});
}

}  // namespace stagecoach
