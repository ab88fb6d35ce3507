// How many clusters a run has, and who is in which: divisions into 1, 2, 4, ... clusters and the planner's own choice
// are compared by the speed that the plan of each would promise.
//
//   speed of a division = C * min over clusters of min(microbatches a second of its plan, what its wires carry)
//
// because clusters meet in every round after the same number of steps. BestDivision takes one of them.
//
// Threading: pure functions. Errors: those of the planner, if no division is possible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/service/measurements.h"
#include "coordinator/service/run_inputs.h"

namespace stagecoach {

// What the plans of a division promise.
struct DivisionSpeed {
  std::vector<double> microbatches_per_second;  // of each cluster
  double loop_seconds = 0;                      // the longest L
};
// `inputs` and `division` as if the run had been given these clusters.
using PredictDivision =
    std::function<absl::StatusOr<DivisionSpeed>(const RunInputs& inputs, const Measurements& division)>;

struct ClusterChoice {
  RunInputs inputs;                      // with the number of clusters that was chosen
  Measurements division;                 // workers in their clusters; those left out are missing
  std::vector<std::string> explanation;  // every division that was compared
};

// `measured` has every pair of workers; a pair that failed or is missing is not used.
absl::StatusOr<ClusterChoice> ChooseClusters(const RunInputs& inputs, const Measurements& measured,
                                             const PredictDivision& predict);

// The fleet as the planner sees it: times as they are while all workers of a host compute, memory that they share.
Fleet MeasuredFleet(const Measurements& measured, uint32_t threads);

}  // namespace stagecoach
