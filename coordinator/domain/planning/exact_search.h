// The best plan of a few workers, over all numbers of clusters and all windows that are tried.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/planner.h"

namespace stagecoach {

struct FoundPlan {
  std::vector<ClusterDraft> clusters;  // none: there is no plan
  PlanAssumptions assumptions;         // under which they were found
  double goodput = 0;
  double bound = 0;  // over the cut points tried; 0: not known
};

// N_max: the largest that the staleness rule allows, and halves of it for as long as less memory would let a worker
// hold more.
std::vector<uint32_t> WindowsTried(const PlanModel& model, const Fleet& fleet,
                                   const std::shared_ptr<const LinkCosts>& links);

// fleet.workers.size() <= 20; the order of the workers breaks ties.
FoundPlan ExactSearch(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                      const PlannerOptions& options);

}  // namespace stagecoach
