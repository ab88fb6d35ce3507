// The layer files of a checkpoint as an executor sees them: opening one, and the digest of its weights.
//
// Threading: pure functions; blocking file reads. Errors: NOT_FOUND, DATA_LOSS, INVALID_ARGUMENT with the file's name.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/safetensors.h"
#include "worker/compute/stage_executor.h"

namespace stagecoach {

// Opens the file of `unit` and checks that it was written at `step`. The caller has verified the manifest's hashes.
absl::StatusOr<SafetensorsReader> OpenCheckpointUnit(const std::string& checkpoint_dir, uint32_t unit, uint64_t step);

// SHA-256 over the tensors named w.0.*, in the unit's order.
std::string WeightsSha256(const CheckpointUnit& unit);

// w.<lag>.<parameter>
std::string WeightName(uint64_t lag, absl::string_view parameter);

// The tensor `name` of `bytes` bytes, or an error that names file and tensor.
absl::StatusOr<absl::string_view> CheckpointBytes(const SafetensorsReader& file, const std::string& file_name,
                                                  const std::string& name, size_t bytes);

}  // namespace stagecoach
