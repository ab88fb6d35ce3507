// Plans of fleets too large for the exact search: sites, chunks of similar workers solved exactly, then
// large-neighbourhood search (docs/planning.md, "Large fleets").
//
// Threading: pure function.
#pragma once

#include <memory>

#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/exact_search.h"
#include "coordinator/domain/planning/planner.h"

namespace stagecoach {

// FoundPlan::bound stays 0.
FoundPlan LargeFleetSearch(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                           const PlannerOptions& options);

}  // namespace stagecoach
