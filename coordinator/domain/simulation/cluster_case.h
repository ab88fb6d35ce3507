// The pipeline of a planned cluster as the simulator sees it: times from the fleet's units, windows N_i by the rule of
// common/schedule_rules.h, links, and what averaging leaves of up- and downlinks.
//
// Threading: pure function.
#pragma once

#include <cstdint>

#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/domain/planning/fleet_plan.h"
#include "coordinator/domain/simulation/pipeline_simulation.h"

namespace stagecoach {

// The link from worker i to j: its own, else that of their regions, else without delay and limit.
FleetLink LinkBetween(const Fleet& fleet, uint32_t i, uint32_t j);

// `cluster` belongs to this model and fleet and has its figures (ReevaluatePlan). clusters: C of averaging.
// Steps, jitter and seed are the caller's.
PipelineCase CaseOfCluster(const PlanModel& model, const Fleet& fleet, const PlannedCluster& cluster, size_t clusters);

}  // namespace stagecoach
