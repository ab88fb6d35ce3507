#include "worker/compute/checkpoint_units.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/sha256.h"
#include "common/status_macros.h"

namespace stagecoach {

absl::StatusOr<SafetensorsReader> OpenCheckpointUnit(const std::string& checkpoint_dir, uint32_t unit, uint64_t step) {
  const std::string path = absl::StrCat(checkpoint_dir, "/", LayerFileName(unit));
  ASSIGN_OR_RETURN(SafetensorsReader file, SafetensorsReader::Open(path));
  const auto written = file.metadata().find("step");
  if (written == file.metadata().end() || written->second != absl::StrCat(step)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " was written after step ",
                     written == file.metadata().end() ? std::string("(not stated)") : written->second,
                     ", expected step ", step, "; resume from a folder that holds one complete checkpoint"));
  }
  return file;
}

std::string WeightsSha256(const CheckpointUnit& unit) {
  Sha256 hash;
  for (const CheckpointTensor& tensor : unit.tensors) {
    if (absl::StartsWith(tensor.name, "w.0.")) hash.Update(tensor.bytes);
  }
  return hash.FinishHex();
}

std::string WeightName(uint64_t lag, absl::string_view parameter) { return absl::StrCat("w.", lag, ".", parameter); }

absl::StatusOr<absl::string_view> CheckpointBytes(const SafetensorsReader& file, const std::string& file_name,
                                                  const std::string& name, size_t bytes) {
  const auto entry = file.tensors().find(name);
  if (entry == file.tensors().end()) {
    const bool is_older_version = absl::StartsWith(name, "w.") && !absl::StartsWith(name, "w.0.");
    return absl::InvalidArgumentError(absl::StrCat(
        file_name, ": tensor ", name, " is missing",
        is_older_version
            ? "; this run's J table needs an older weight version than the checkpoint holds: resume with the "
              "J table that it was written with"
            : "; the checkpoint belongs to another model or optimizer"));
  }
  if (entry->second.dtype != "F32" || entry->second.data.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": tensor ", name, " is ", entry->second.dtype, " of ",
                                                   entry->second.data.size(), " bytes, expected F32 of ", bytes,
                                                   " bytes; the checkpoint belongs to another model"));
  }
  return entry->second.data;
}

}  // namespace stagecoach
