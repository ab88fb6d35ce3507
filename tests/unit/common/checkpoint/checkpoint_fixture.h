// A checkpoint of three small layers, written as the worker and the coordinator write it.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/checkpoint/safetensors.h"
#include "common/sha256.h"
#include "tests/support/scratch_folder.h"

namespace stagecoach {

constexpr int kFixtureUnits = 3;

inline std::string FixtureLayer(uint64_t step, int unit) {
  const std::string data(64, static_cast<char>('a' + (step + static_cast<uint64_t>(unit)) % 26));
  return *SerializeSafetensors({{"w.0.weight", "F32", {16}, data}}, {{"step", std::to_string(step)}});
}

inline absl::StatusOr<CheckpointManifest> WriteLayers(const std::string& run_dir, uint64_t step,
                                                      FileOperations& files) {
  CheckpointManifest manifest;
  manifest.set_step(step);
  for (int unit = 0; unit < kFixtureUnits; ++unit) {
    const std::string bytes = FixtureLayer(step, unit), name = LayerFileName(static_cast<uint32_t>(unit));
    const auto hash = WriteFileDurably(CheckpointDir(run_dir, step), name, bytes, files);
    if (!hash.ok()) return hash.status();
    CheckpointFile& file = *manifest.add_files();
    file.set_unit(static_cast<uint32_t>(unit));
    file.set_name(name);
    file.set_sha256(*hash);
    file.set_bytes(bytes.size());
    file.set_weights_sha256(Sha256Hex(absl::StrCat("weights", step, unit)));
  }
  manifest.add_losses(5.25);
  manifest.add_losses(std::numeric_limits<double>::quiet_NaN());
  return manifest;
}

inline absl::Status WriteACheckpoint(const std::string& run_dir, uint64_t step, FileOperations& files = SystemFiles()) {
  const auto manifest = WriteLayers(run_dir, step, files);
  if (!manifest.ok()) return manifest.status();
  return CommitCheckpoint(run_dir, *manifest, files);
}

}  // namespace stagecoach
