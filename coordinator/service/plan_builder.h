// From measurements to a run record and a plan for each cluster: cuts, schedule numbers, prediction, explanation.
// Every cluster has cuts of its own, from its own measured times; M and J belong to the run and are those that its
// longest pipeline needs.
//
// Threading: pure functions. Errors: FAILED_PRECONDITION, INVALID_ARGUMENT, RESOURCE_EXHAUSTED with what to change.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/service/measurements.h"
#include "coordinator/service/run_inputs.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

struct BuiltPlan {
  RunRecord record;
  std::vector<Plan> plans;  // one a cluster
  uint64_t first_step = 0;
  uint64_t stop_after_step = 0;  // in updates; the whole run if the user gave none
};

// What a worker measures: the spec with every default that a probe needs.
RunSpec ProbeSpec(const RunInputs& inputs);

// Where the spec leaves the clusters to the plan they are chosen here (coordinator/service/cluster_choice.h): the
// record has what was chosen, and the plans name who is in which.
absl::StatusOr<BuiltPlan> BuildPlan(const RunInputs& inputs, const Measurements& measured, uint64_t epoch);

}  // namespace stagecoach
