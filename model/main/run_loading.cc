#include "model/main/run_loading.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/status_macros.h"
#include "model/record_reader.h"

namespace stagecoach {
namespace {

absl::StatusOr<CheckpointManifest> FindManifest(const std::string& run_dir, std::optional<uint64_t> step) {
  if (!step.has_value()) {
    std::vector<std::string> rejected;
    auto manifest = NewestVerified(run_dir, &rejected);
    for (const std::string& line : rejected) std::cerr << "stagecoach-model: skipped " << line << "\n";
    return manifest;
  }
  auto manifest = ReadManifest(run_dir, *step);
  if (absl::IsNotFound(manifest.status())) {
    return absl::NotFoundError(absl::StrCat("no checkpoint of step ", *step, " in ", CheckpointsDir(run_dir),
                                            "; complete are: ", absl::StrJoin(CompleteCheckpoints(run_dir), " ")));
  }
  RETURN_IF_ERROR(manifest.status());
  RETURN_IF_ERROR(VerifyCheckpoint(run_dir, *manifest));
  return manifest;
}

}  // namespace

absl::StatusOr<RunConfig> LoadRunConfig(const std::string& run_dir, uint32_t cluster) {
  const auto record = ReadRunRecord(run_dir);
  if (absl::IsNotFound(record.status())) {
    return absl::NotFoundError(absl::StrCat("'", run_dir, "' holds no record.json: it is not the folder of a run"));
  }
  RETURN_IF_ERROR(record.status());
  return ReadRunConfig(*record, cluster);
}

absl::StatusOr<CheckpointFiles> FindCheckpoint(const std::string& run_dir, std::optional<uint64_t> step) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest, FindManifest(run_dir, step));
  CheckpointFiles files;
  files.step = manifest.step();
  files.weight_hash = manifest.weight_hash();
  for (const CheckpointFile& file : manifest.files()) {
    if (file.cluster() > 0) break;
    files.unit_files.push_back(absl::StrCat(CheckpointDir(run_dir, manifest.step()), "/", file.name()));
  }
  return files;
}

}  // namespace stagecoach
