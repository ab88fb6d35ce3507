// What other numbers of clusters would have given, beside the one that a plan chose.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/domain/planning/fleet_plan.h"
#include "coordinator/domain/planning/planner.h"

namespace stagecoach {

// Plans of more workers are not compared: each would take as long as the plan itself, and say less.
inline constexpr uint32_t kMostWorkersCompared = 128;

// One cluster, half as many as `chosen`, one less, one more and twice as many, ascending; as far as there are workers.
// `options` are those of the plan; their number of clusters is not looked at.
std::vector<ClusterCount> OtherClusterCounts(const PlanModel& model, const Fleet& fleet, const PlannerOptions& options,
                                             uint32_t chosen);

}  // namespace stagecoach
