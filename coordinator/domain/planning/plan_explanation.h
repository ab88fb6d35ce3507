// Why a plan is as fast as it is, what would help, who was left out and why; and why there is no plan.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/fleet_plan.h"

namespace stagecoach {

// `costs`: under the plan's window and number of clusters.
std::vector<std::string> ExplainPlan(const CostModel& costs, const FleetPlan& plan);

// INVALID_ARGUMENT: facts that make no sense: names twice, times or rates that are no numbers, rows of another model.
absl::Status CheckFacts(const PlanModel& model, const Fleet& fleet);

// Of a fleet without a plan of `clusters` clusters (0: of any number).
absl::Status WhyThereIsNoPlan(const PlanModel& model, const Fleet& fleet, uint32_t clusters);

}  // namespace stagecoach
