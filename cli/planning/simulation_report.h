// What a simulation found beside what the plan predicted, as JSON (every key in docs/planning.md) and as a page.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/planning/planning_inputs.h"
#include "coordinator/domain/simulation/pipeline_simulation.h"

namespace stagecoach {

struct SimulatedCluster {
  PipelineCase pipeline;
  PipelineOutcome outcome;
};

// `clusters` are those of the plan, in its order.
nlohmann::ordered_json SimulationJson(const PlanningInputs& inputs, const FleetPlan& plan,
                                      const std::vector<SimulatedCluster>& clusters);
std::string SimulationText(const PlanningInputs& inputs, const FleetPlan& plan,
                           const std::vector<SimulatedCluster>& clusters);

}  // namespace stagecoach
