// What a run spec may still say about a run that has a record (--resume, --like): the record decides everything that
// the arithmetic depends on.
//
//   name, run_dir, data.path, checkpoint.*, evaluation.every_steps, schedule.recompute    taken
//   schedule.steps, evaluation.microbatches                                               kept, with a note
//   averaging.choose_clusters                                                             done: the record's clusters
//   every other key                                                                       must be absent or equal
//
// Threading: pure. Errors: INVALID_ARGUMENT: names the key, both values and what to do.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/run.pb.h"

namespace stagecoach {

// The record's spec in the units that a user writes: a pipedream run counts updates, M of them in each step.
RunSpec SpecAsWritten(const RunRecord& record);

// wanted: as the user gave it, without defaults: what is not set is no contradiction. The result is SpecAsWritten with
// what may change. `notes` gets a line for each value that is not used.
absl::StatusOr<RunSpec> MergeWithRecord(const RunSpec& wanted, const RunRecord& record,
                                        std::vector<std::string>* notes);

// Counts of steps in the units of the record.
void ScaleSteps(uint64_t updates_per_step, RunSpec* spec);

}  // namespace stagecoach
