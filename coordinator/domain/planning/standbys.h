// Unused workers that keep a copy of a stage, so that its loss costs seconds instead of a restart.
//
// Threading: pure function.
#pragma once

#include <vector>

#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/fleet_plan.h"

namespace stagecoach {

// By benefit = failure rate of the member * (E[stall] without - with standby) * g_c, greatest first, each worker once.
// A standby holds the stage in its memory and reaches both neighbours of it.
std::vector<PlannedStandby> AssignStandbys(const CostModel& costs, const FleetPlan& plan, double standby_stall_seconds);

}  // namespace stagecoach
