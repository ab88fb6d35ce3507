// Writes the layers of one stage into a checkpoint folder and says what is on disk.
//
// Threading: WriteCheckpointUnits blocks on the disk; call it on the bulk thread.
// Errors: a layer that could not be written carries the text in CheckpointPart.error; the others are still tried.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protos/coordinator.pb.h"
#include "worker/compute/stage_executor.h"

namespace stagecoach {

// `folder`: inside that of the checkpoint (of a cluster); may be empty.
std::vector<CheckpointPart> WriteCheckpointUnits(const std::string& run_dir, const std::string& folder, uint64_t epoch,
                                                 uint64_t step, const std::vector<CheckpointUnit>& units);

}  // namespace stagecoach
