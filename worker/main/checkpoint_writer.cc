#include "worker/main/checkpoint_writer.h"

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/checkpoint/safetensors.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

absl::Status WriteUnit(const std::string& directory, const CheckpointUnit& unit, CheckpointPart* part) {
  std::vector<TensorEntry> entries;
  entries.reserve(unit.tensors.size());
  for (const CheckpointTensor& tensor : unit.tensors) {
    entries.push_back(TensorEntry{tensor.name, "F32", tensor.shape, tensor.bytes});
  }
  ASSIGN_OR_RETURN(const std::string bytes, SerializeSafetensors(entries, unit.metadata));
  ASSIGN_OR_RETURN(const std::string sha256, WriteFileDurably(directory, part->file(), bytes));
  part->set_sha256(sha256);
  part->set_bytes(bytes.size());
  part->set_weights_sha256(unit.weights_sha256);
  return absl::OkStatus();
}

}  // namespace

std::vector<CheckpointPart> WriteCheckpointUnits(const std::string& run_dir, const std::string& folder, uint64_t epoch,
                                                 uint64_t step, const std::vector<CheckpointUnit>& units) {
  const std::string checkpoint = CheckpointDir(run_dir, step);
  const std::string directory = folder.empty() ? checkpoint : absl::StrCat(checkpoint, "/", folder);
  std::vector<CheckpointPart> parts;
  parts.reserve(units.size());
  for (const CheckpointUnit& unit : units) {
    CheckpointPart part;
    part.set_epoch(epoch);
    part.set_step(step);
    part.set_unit(unit.unit);
    part.set_file(LayerFileName(unit.unit));
    const absl::Status status = WriteUnit(directory, unit, &part);
    if (!status.ok()) part.set_error(status.ToString());
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace stagecoach
