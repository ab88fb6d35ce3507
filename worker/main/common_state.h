// What a checkpoint holds of the rounds between clusters, beside the weights and moments of each: the common weights
// after the last round that had begun, and the state that goes from round to round. Packed like the weights of a stage
// (StageExecutor::ReadWeights), so that each unit's part lies in the unit's file and the digest of the file covers it.
//
//   common.theta      always
//   common.momentum   with outer momentum
//   common.residual   with error feedback of the exchange; of this cluster
//   common.pinned     if the result of that round has not entered yet: what this cluster contributed, W^(t)
//   metadata "rounds" how many rounds had begun
//
// Threading: pure functions; ReadCommonState reads files. Errors: those of OpenCheckpointUnit and CheckpointBytes;
// INVALID_ARGUMENT for a checkpoint with another number of rounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/averaging/averaging_config.h"
#include "worker/compute/stage_executor.h"

namespace stagecoach {

struct CommonState {
  uint64_t rounds = 0;
  std::vector<float> theta, momentum, residual, pinned;  // empty: not part of the state
};

// `units`: those of a whole stage, in order.
void AddCommonState(const CommonState& state, absl::Span<const uint64_t> unit_parameters,
                    std::vector<CheckpointUnit>* units);

// `checkpoint_dir`: of the cluster. `first_unit`: of the stage.
absl::StatusOr<CommonState> ReadCommonState(const std::string& checkpoint_dir, uint64_t step, uint64_t total_steps,
                                            const AveragingConfig& averaging, uint32_t first_unit,
                                            absl::Span<const uint64_t> unit_parameters);

}  // namespace stagecoach
