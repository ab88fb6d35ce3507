// A plan as JSON (every key in docs/planning.md), as a page for people, and back from JSON.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT: not a plan of this fleet, with the key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "cli/planning/planning_inputs.h"

namespace stagecoach {

nlohmann::ordered_json PlanJson(const PlanningInputs& inputs, const FleetPlan& plan);
std::string PlanText(const PlanningInputs& inputs, const FleetPlan& plan);

// Clusters and stages of a plan that PlanJson wrote, or somebody: `window` of each cluster, `worker`, `first_unit`,
// `end_unit` of each stage.
// `microbatches_per_step`, if it is there, becomes M where the run leaves it open.
absl::StatusOr<FleetPlan> ReadPlan(const std::string& text, const std::string& file_name, PlanningInputs* inputs);

}  // namespace stagecoach
