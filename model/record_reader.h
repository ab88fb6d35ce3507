// RunRecord (protobuf) -> RunConfig (plain values). This file and its .cc see no torch.
#pragma once

#include "absl/status/statusor.h"
#include "model/run_config.h"
#include "protos/run.pb.h"

namespace stagecoach {

// INVALID_ARGUMENT names the field that a record cannot have.
absl::StatusOr<RunConfig> ReadRunConfig(const RunRecord& record);

// The same for a spec whose record does not exist yet (probing): one stage, J = 0.
absl::StatusOr<RunConfig> ReadRunConfig(const RunSpec& spec);

}  // namespace stagecoach
