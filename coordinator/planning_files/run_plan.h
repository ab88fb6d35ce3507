// A plan for a run that may leave M to it.
//
// Threading: pure functions. Errors: those of PlanFleet.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/domain/planning/planner.h"

namespace stagecoach {

// Plans; where model->microbatches is 0 it is settled first and written there: 2N of the longest window.
absl::StatusOr<FleetPlan> PlanRun(const Fleet& fleet, const PlannerOptions& options, PlanModel* model);

}  // namespace stagecoach
