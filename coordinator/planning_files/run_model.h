// The model of a run as the planner knows it, and what its units cost: from the spec alone, without workers.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT "path: what is wrong" for a spec that is valid but cannot be
// planned.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/model_shape.h"
#include "coordinator/domain/planning/fleet_facts.h"
#include "protos/run.pb.h"

namespace stagecoach {

// `spec` has every default that does not depend on the plan (FillDefaults).
ModelShape ShapeOf(const ModelSpec& spec);
// In front of which units a cut may lie; size = units.
std::vector<bool> AllowedCuts(const ModelSpec& spec);
// Bytes of one frame: a boundary of a microbatch, in the run's wire format.
double FrameBytes(const RunSpec& spec);
// Moments a parameter: Muon keeps one of the blocks' matrices, the rest is AdamW's.
uint32_t OptimizerBytes(const RunSpec& spec, uint32_t unit);
// What rounds between clusters keep, a parameter: what was pinned, the common weights, the new ones, the sum and an
// encoded copy; momentum old and new; what rounding lost, old and new. 0 if clusters do not average.
uint32_t RoundBytes(const AveragingSpec& averaging);

// Arithmetic and memory traffic of one microbatch through one unit of a kind, and of one update of it.
struct KindWork {
  double forward_flops = 0, backward_flops = 0, update_flops = 0, update_bytes = 0;
};

struct RunModel {
  PlanModel plan;               // microbatches = 0: the spec leaves M to the plan
  std::vector<KindWork> work;   // by kind
  std::vector<bool> kind_used;  // by kind: the model has such units
};

struct RunModelOptions {
  bool averages = true;         // several clusters are possible: counts what rounds send and keep
  bool rounds_in_limit = true;  // what rounds keep counts against the workers' memory (false: GPUs)
};

// `spec` is valid (ValidateRunSpec); defaults are filled in here.
absl::StatusOr<RunModel> RunModelOf(const RunSpec& spec, const RunModelOptions& options);

}  // namespace stagecoach
