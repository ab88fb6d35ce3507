// What `plan` and `simulate` work on: a fleet file and a run file, and the plan of the one for the other.
//
// Threading: pure functions but for reading files. Errors: INVALID_ARGUMENT, NOT_FOUND with FILE:LINE;
// FAILED_PRECONDITION: there is no plan, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/domain/planning/baselines/baseline_planner.h"
#include "coordinator/domain/planning/fleet_plan.h"
#include "coordinator/planning_files/fleet_file.h"
#include "coordinator/planning_files/run_model.h"
#include "protos/run.pb.h"

namespace stagecoach {

struct PlanningInputs {
  std::string fleet_name;
  RunSpec spec;  // as written
  RunModel model;
  Fleet fleet;
  uint32_t clusters = 0;             // asked for; 0: the planner chooses
  std::optional<Baseline> baseline;  // plans instead of ours
  uint64_t seed = 1;                 // of the baseline
  std::vector<std::string> notes;    // for people
};

// clusters: of the command line, 0 if it names none: then those of the run file, if it does and
// does not leave the choice to the plan.
absl::StatusOr<PlanningInputs> ReadPlanningInputs(const std::string& fleet_file, const std::string& run_file,
                                                  uint32_t clusters);

// Plans, and where the run leaves M to the plan settles it: 2N, as a coordinator does.
absl::StatusOr<FleetPlan> MakePlan(PlanningInputs* inputs);

// Fills plan->other_counts if the number of clusters was chosen by our planner.
void CompareClusterCounts(const PlanningInputs& inputs, FleetPlan* plan);

// J of the plan is that of the run, where that fixes it; said in the explanation if stages have to wait for it.
void ApplyGivenJ(const PlanningInputs& inputs, FleetPlan* plan);

}  // namespace stagecoach
