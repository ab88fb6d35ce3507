// Other people's ways to divide a fleet, judged by our cost model so that figures can be compared
// (docs/planning.md, "Baselines").
//
// A baseline decides who works with whom, in which order and where the model is cut; windows are then chosen for it as
// the planner would. Clusters that do not fit, or whose neighbours do not reach each other, do no work; their workers
// are unused in the plan. Equal seeds give equal plans; the order of registration is an input of most of them.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT (no workers, more clusters than workers, more workers or stages
// than the baseline can do), RESOURCE_EXHAUSTED (it finds nothing that runs).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/domain/planning/fleet_plan.h"
#include "coordinator/domain/planning/planner.h"

namespace stagecoach {

enum class Baseline {
  kEqual,         // order of registration, equal clusters, equal cuts, best depth
  kRandom,        // random order, depth and cuts
  kGreedyMemory,  // most memory first, as many units as fit
  kRavnestGa,     // Ravnest's genetic algorithm, cuts by memory
  kRavnestEqual,  // the same clusters, equal cuts as in its code
  kDtfm,          // DT-FM's search over equal groups, best depth
};

const char* BaselineName(Baseline baseline);
std::optional<Baseline> BaselineNamed(absl::string_view name);

// Ours: CutChain cuts each cluster; only members and their order are the baseline's.
enum class BaselineCuts { kItsOwn, kOurs };

// Of the options clusters (exactly so many for equal, random and dtfm, the most for the others), stall_seconds and
// seed.
absl::StatusOr<FleetPlan> PlanBaseline(Baseline baseline, const PlanModel& model, const Fleet& fleet,
                                       const PlannerOptions& options, BaselineCuts cuts = BaselineCuts::kItsOwn);

}  // namespace stagecoach
