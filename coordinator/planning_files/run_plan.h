// A plan for a run that may leave M to it.
//
// Threading: pure functions. Errors: those of PlanFleet, or of the other planner.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "coordinator/domain/planning/planner.h"

namespace stagecoach {

// Plans; where model->microbatches is 0 it is settled first and written there: 2N of the longest window.
absl::StatusOr<FleetPlan> PlanRun(const Fleet& fleet, const PlannerOptions& options, PlanModel* model);
// The same with another planner.
absl::StatusOr<FleetPlan> PlanRunWith(absl::FunctionRef<absl::StatusOr<FleetPlan>(const PlanModel&)> planner,
                                      PlanModel* model);

}  // namespace stagecoach
