// Opens what a run left on disk. Shows no protobuf and no torch.
//
// Threading: one thread. Errors: NOT_FOUND, DATA_LOSS, INVALID_ARGUMENT with the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/run_config.h"

namespace stagecoach {

// Of one cluster of the run; RunConfig::num_clusters says how many there are.
absl::StatusOr<RunConfig> LoadRunConfig(const std::string& run_dir, uint32_t cluster = 0);

struct CheckpointFiles {
  uint64_t step = 0;
  std::string weight_hash;
  std::vector<std::string> unit_files;  // verified, by unit; of the first cluster
};
// The checkpoint of `step`, or the newest one that verifies; newer ones that do not are named on standard error.
absl::StatusOr<CheckpointFiles> FindCheckpoint(const std::string& run_dir, std::optional<uint64_t> step);

}  // namespace stagecoach
