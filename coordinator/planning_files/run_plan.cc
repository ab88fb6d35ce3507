#include "coordinator/planning_files/run_plan.h"

#include <algorithm>

#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr uint32_t kFirstMicrobatches = 64;   // M before windows are known
constexpr uint32_t kMostMicrobatches = 4096;  // of the run spec
constexpr int kMostAttempts = 6;              // of settling M: 2N moves little once it is near

uint32_t LargestWindowOf(const FleetPlan& plan) {
  uint32_t window = 1;
  for (const PlannedCluster& cluster : plan.clusters) window = std::max(window, cluster.window);
  return window;
}

}  // namespace

absl::StatusOr<FleetPlan> PlanRun(const Fleet& fleet, const PlannerOptions& options, PlanModel* model) {
  return PlanRunWith([&](const PlanModel& with_m) { return PlanFleet(with_m, fleet, options); }, model);
}

absl::StatusOr<FleetPlan> PlanRunWith(absl::FunctionRef<absl::StatusOr<FleetPlan>(const PlanModel&)> planner,
                                      PlanModel* model) {
  const bool given = model->microbatches > 0;
  if (!given) model->microbatches = kFirstMicrobatches;
  ASSIGN_OR_RETURN(FleetPlan plan, planner(*model));
  for (int attempt = 0; !given && attempt < kMostAttempts; ++attempt) {
    const uint32_t wanted = std::min(kMostMicrobatches, 2 * LargestWindowOf(plan));
    if (wanted == model->microbatches) break;
    model->microbatches = wanted;
    ASSIGN_OR_RETURN(plan, planner(*model));
  }
  return plan;
}

}  // namespace stagecoach
