// Checkpoints of a run on disk: run_dir/checkpoints/step-000000123/{layer-0003.safetensors..., manifest.json}. With
// several clusters each has a folder of layer files in there (cluster-0, cluster-1, ...), and the one manifest lists
// all.
//
// Every file: temporary name in the same folder, write, fsync, rename, fsync of the folder. The manifest is written
// last and is the commit: a folder without one is incomplete and ignored. The newest `keep` complete ones stay.
//
// Threading: functions may be called from any thread, not concurrently for one checkpoint.
// Errors: DATA_LOSS names the file whose hash differs; RESOURCE_EXHAUSTED: disk full (nothing is left behind).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/durable_file.h"
#include "protos/checkpoint.pb.h"

namespace stagecoach {

std::string CheckpointsDir(const std::string& run_dir);
std::string CheckpointDir(const std::string& run_dir, uint64_t step);
std::string LayerFileName(uint32_t unit);  // layer-0003.safetensors
// Folder of a cluster's layer files inside that of the checkpoint: "cluster-1", empty in a run of one cluster.
std::string ClusterFolder(uint32_t cluster, uint32_t num_clusters);
// Name of a layer file in the manifest: the two together.
std::string CheckpointFileName(uint32_t cluster, uint32_t num_clusters, uint32_t unit);

// Writes bytes to dir/name durably, creating dir. Returns the SHA-256 in hex.
absl::StatusOr<std::string> WriteFileDurably(const std::string& dir, const std::string& name, absl::string_view bytes,
                                             FileOperations& files = SystemFiles());

// Commit: checks that every file of the manifest is there with its size, fills weight_hash, writes manifest.json.
absl::Status CommitCheckpoint(const std::string& run_dir, CheckpointManifest manifest,
                              FileOperations& files = SystemFiles());

// SHA-256 over the weights_sha256 strings in the order of files; of one cluster's files alone.
std::string WeightHash(const CheckpointManifest& manifest);
std::string ClusterWeightHash(const CheckpointManifest& manifest, uint32_t cluster);

// Steps of all complete checkpoints (a readable manifest), ascending.
std::vector<uint64_t> CompleteCheckpoints(const std::string& run_dir);
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& run_dir, uint64_t step);
// Recomputes every hash.
absl::Status VerifyCheckpoint(const std::string& run_dir, const CheckpointManifest& manifest);
// The newest checkpoint that verifies. `rejected` (may be null) gets a line for each newer one that does not, naming
// the file and why. NOT_FOUND if there is none.
absl::StatusOr<CheckpointManifest> NewestVerified(const std::string& run_dir, std::vector<std::string>* rejected);
// Deletes all but the newest `keep` complete ones, and incomplete ones older than the newest complete one. If none of
// the kept ones verifies, the newest one that does stays as well.
absl::Status PruneCheckpoints(const std::string& run_dir, uint32_t keep);

// Deletes what there is of a checkpoint that was given up. A complete one is left alone: FAILED_PRECONDITION.
absl::Status DiscardIncomplete(const std::string& run_dir, uint64_t step);

// run_dir/record.json: the RunRecord as protobuf JSON.
absl::Status WriteRunRecord(const std::string& run_dir, const RunRecord& record);
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& run_dir);

}  // namespace stagecoach
