// From measurements to a run record and a plan for each cluster: cuts, schedule numbers, prediction, explanation.
// Every cluster has cuts of its own, from its own measured times; M and J belong to the run and are those that its
// longest pipeline needs.
//
// Threading: pure functions. Errors: FAILED_PRECONDITION, INVALID_ARGUMENT, RESOURCE_EXHAUSTED with what to change.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/domain/membership.h"
#include "coordinator/service/run_inputs.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

struct Measurements {
  std::vector<WorkerDescription> workers;  // in pipeline order, cluster after cluster
  std::vector<size_t> cluster_sizes;       // workers of each; empty: one cluster
  std::map<std::string, ProbeResult> probes;
  std::map<std::pair<std::string, std::string>, LinkResult> links;  // from, to
};

struct BuiltPlan {
  RunRecord record;
  std::vector<Plan> plans;  // one a cluster
  uint64_t first_step = 0;
  uint64_t stop_after_step = 0;  // in updates; the whole run if the user gave none
};

// What a worker measures: the spec with every default that a probe needs.
RunSpec ProbeSpec(const RunInputs& inputs);

absl::StatusOr<BuiltPlan> BuildPlan(const RunInputs& inputs, const Measurements& measured, uint64_t epoch);

}  // namespace stagecoach
