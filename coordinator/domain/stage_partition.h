// Cuts the units of a model over workers in a given order: exact, by measured time under memory limits.
//
// Minimises the largest stage time; among those the least sum of squared stage times; among those the earliest cuts.
// Every worker gets a non-empty stage. Equal input gives equal output on every machine.
//
// Threading: pure function. Errors: INVALID_ARGUMENT (input shapes), RESOURCE_EXHAUSTED (does not fit; says what).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

struct PartitionWorker {
  std::string name;
  std::vector<double> unit_seconds;  // forward + backward + share of the update, of each unit
  std::vector<uint64_t> unit_bytes;  // weights, gradients, optimizer state of each unit
  uint64_t fixed_bytes = 0;          // whatever the stage holds
  uint64_t memory_limit_bytes = 0;   // 0 = no limit known
};

struct PartitionProblem {
  std::vector<bool> cut_allowed;         // cut in front of unit u; size = number of units; [0] is ignored
  std::vector<PartitionWorker> workers;  // in pipeline order
};

struct Partition {
  std::vector<uint32_t> cuts;  // ascending; workers = cuts + 1
  std::vector<double> stage_seconds;
  std::vector<uint64_t> stage_bytes;
  double max_stage_seconds = 0;
};

// Stages that a model can be cut into at most.
uint32_t MaxStages(const std::vector<bool>& cut_allowed);

absl::StatusOr<Partition> PartitionStages(const PartitionProblem& problem);

// The stages for cuts that are fixed already. RESOURCE_EXHAUSTED if one does not fit.
absl::StatusOr<Partition> EvaluateCuts(const PartitionProblem& problem, const std::vector<uint32_t>& cuts);

}  // namespace stagecoach
