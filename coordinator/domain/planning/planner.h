// Divides a fleet into clusters, orders their members and cuts the model: most microbatches a second in all
// (docs/planning.md).
//
// Exact up to options.exact_workers workers; beyond, chunks of similar workers solved exactly and improved by
// large-neighbourhood search. Always with an upper bound that no plan exceeds. Equal facts give an equal plan, in
// whatever order the workers are listed; the budget is counted in searches, not in seconds.
//
// Threading: pure function. Errors: INVALID_ARGUMENT (facts that make no sense, names twice), RESOURCE_EXHAUSTED
// (memory), FAILED_PRECONDITION (workers that do not reach each other, more stages asked for than there are cuts).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/domain/planning/fleet_plan.h"

namespace stagecoach {

struct PlannerOptions {
  uint32_t clusters = 0;             // exactly so many; 0 = chosen here
  double stall_seconds = 60;         // expected stop of a cluster when a member fails
  double standby_stall_seconds = 5;  // the same with a standby
  uint32_t exact_workers = 14;       // at most 20; time and memory double with each
  uint32_t searches = 0;             // re-solved neighbourhoods of a large fleet; 0 = by its size
  uint64_t seed = 1;
  bool explain = true;  // FleetPlan::explanation
};

absl::StatusOr<FleetPlan> PlanFleet(const PlanModel& model, const Fleet& fleet, const PlannerOptions& options);

}  // namespace stagecoach
