// RunRecord (protobuf) -> RunConfig (plain values). This file and its .cc see no torch.
#pragma once

#include "absl/status/statusor.h"
#include "model/run_config.h"
#include "protos/run.pb.h"

namespace stagecoach {

// Of one cluster of the run; 0 in a run of one. INVALID_ARGUMENT names the field that a record cannot have.
absl::StatusOr<RunConfig> ReadRunConfig(const RunRecord& record, uint32_t cluster = 0);

// The same for a spec whose record does not exist yet (probing): one stage, J = 0.
absl::StatusOr<RunConfig> ReadRunConfig(const RunSpec& spec);

}  // namespace stagecoach
