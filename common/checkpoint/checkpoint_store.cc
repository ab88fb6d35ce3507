#include "common/checkpoint/checkpoint_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/durable_file.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace stagecoach {
namespace {

constexpr char kManifestName[] = "manifest.json";
constexpr char kRecordName[] = "record.json";
// The loss of a million steps takes about 20 MiB of JSON; nothing larger is read into memory.
constexpr uint64_t kMaxJsonBytes = 64u << 20;
constexpr uint32_t kFormat = 1;

std::string ManifestPath(const std::string& run_dir, uint64_t step) {
  return absl::StrCat(CheckpointDir(run_dir, step), "/", kManifestName);
}

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return absl::InternalError(absl::StrCat("cannot write as JSON: ", status.ToString()));
  return text;
}

absl::Status FromJsonFile(const std::string& path, google::protobuf::Message* message) {
  std::string text;
  RETURN_IF_ERROR(ReadWholeFile(path, kMaxJsonBytes, &text));
  // A field that this version does not know would change what the file means: refuse it.
  const auto status = google::protobuf::util::JsonStringToMessage(text, message);
  if (!status.ok()) return absl::DataLossError(absl::StrCat(path, " is damaged: ", status.ToString()));
  return absl::OkStatus();
}

// step-000000123 -> 123.
bool ParseStep(absl::string_view name, uint64_t* step) {
  if (!absl::StartsWith(name, "step-")) return false;
  name.remove_prefix(5);
  if (name.size() < 9 || name.size() > 20) return false;
  for (const char c : name) {
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  }
  return absl::SimpleAtoi(name, step);
}

// Steps of all folders that look like a checkpoint, complete or not, ascending.
std::vector<uint64_t> CheckpointFolders(const std::string& run_dir) {
  std::vector<uint64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(CheckpointsDir(run_dir), ignored)) {
    uint64_t step = 0;
    const std::string name = entry.path().filename().string();
    // The second test refuses a second spelling of one number, which would be another folder.
    if (entry.is_directory(ignored) && ParseStep(name, &step) &&
        CheckpointDir(run_dir, step) == entry.path().string()) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

uint32_t NumClusters(const CheckpointManifest& manifest) {
  return static_cast<uint32_t>(std::max(1, manifest.record().clusters_size()));
}

// Units 0..n-1 of every cluster in order, each under the name that the server gives it: a manifest can point nowhere
// else.
absl::Status CheckFileList(const CheckpointManifest& manifest, const std::string& where) {
  if (manifest.files().empty()) return absl::DataLossError(absl::StrCat(where, ": the manifest lists no files"));
  const uint64_t layers = manifest.record().spec().model().layers();
  const uint32_t clusters = NumClusters(manifest);
  if (layers > 0 && static_cast<uint64_t>(manifest.files_size()) != clusters * (layers + 2)) {
    return absl::DataLossError(absl::StrCat(
        where, ": the manifest lists ", manifest.files_size(), " files for a model of ", layers, " layers, which has ",
        layers + 2, " units", clusters > 1 ? absl::StrCat(", in ", clusters, " clusters") : ""));
  }
  const uint32_t units = static_cast<uint32_t>(manifest.files_size()) / clusters;
  for (int i = 0; i < manifest.files_size(); ++i) {
    const CheckpointFile& file = manifest.files(i);
    const uint32_t cluster = static_cast<uint32_t>(i) / units, unit = static_cast<uint32_t>(i) % units;
    const std::string name = CheckpointFileName(cluster, clusters, unit);
    if (file.cluster() != cluster || file.unit() != unit || file.name() != name) {
      return absl::DataLossError(
          absl::StrCat(where, ": entry ", i, " of the manifest must be unit ", unit, " in ", name));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const std::string& path, uint64_t expected) {
  struct stat state;
  if (lstat(path.c_str(), &state) != 0) return absl::DataLossError(absl::StrCat(path, " is missing"));
  if (!S_ISREG(state.st_mode)) return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  if (static_cast<uint64_t>(state.st_size) != expected) {
    return absl::DataLossError(absl::StrCat(path, " has ", state.st_size, " bytes; the manifest says ", expected));
  }
  return absl::OkStatus();
}

// The manifest goes first, durably: whatever interrupts the rest leaves a folder that counts as incomplete.
absl::Status DeleteCheckpoint(const std::string& run_dir, uint64_t step) {
  const std::string folder = CheckpointDir(run_dir, step);
  SystemFiles().Remove(ManifestPath(run_dir, step));
  SystemFiles().SyncFolder(folder);
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) return absl::InternalError(absl::StrCat("cannot delete ", folder, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace

std::string CheckpointsDir(const std::string& run_dir) { return run_dir + "/checkpoints"; }

std::string CheckpointDir(const std::string& run_dir, uint64_t step) {
  return absl::StrFormat("%s/step-%09u", CheckpointsDir(run_dir), step);
}

std::string LayerFileName(uint32_t unit) { return absl::StrFormat("layer-%04u.safetensors", unit); }

std::string ClusterFolder(uint32_t cluster, uint32_t num_clusters) {
  return num_clusters > 1 ? absl::StrCat("cluster-", cluster) : "";
}

std::string CheckpointFileName(uint32_t cluster, uint32_t num_clusters, uint32_t unit) {
  const std::string folder = ClusterFolder(cluster, num_clusters);
  return folder.empty() ? LayerFileName(unit) : absl::StrCat(folder, "/", LayerFileName(unit));
}

absl::StatusOr<std::string> WriteFileDurably(const std::string& dir, const std::string& name, absl::string_view bytes,
                                             FileOperations& files) {
  RETURN_IF_ERROR(WriteDurably(files, dir, name, bytes));
  return Sha256Hex(bytes);
}

absl::Status CommitCheckpoint(const std::string& run_dir, CheckpointManifest manifest, FileOperations& files) {
  manifest.set_format(kFormat);
  const std::string folder = CheckpointDir(run_dir, manifest.step());
  RETURN_IF_ERROR(CheckFileList(manifest, folder));
  for (const CheckpointFile& file : manifest.files()) {
    RETURN_IF_ERROR(CheckSize(absl::StrCat(folder, "/", file.name()), file.bytes()));
  }
  manifest.set_weight_hash(WeightHash(manifest));
  ASSIGN_OR_RETURN(const std::string text, ToJson(manifest));
  if (text.size() > kMaxJsonBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a manifest of ", text.size(), " bytes is above the limit of ", kMaxJsonBytes));
  }
  RemoveAbandonedFiles(files, folder);
  for (uint32_t c = 0; NumClusters(manifest) > 1 && c < NumClusters(manifest); ++c) {
    RemoveAbandonedFiles(files, absl::StrCat(folder, "/", ClusterFolder(c, NumClusters(manifest))));
  }
  return WriteDurably(files, folder, kManifestName, text);
}

std::string WeightHash(const CheckpointManifest& manifest) {
  Sha256 hash;
  for (const CheckpointFile& file : manifest.files()) hash.Update(file.weights_sha256());
  return hash.FinishHex();
}

std::string ClusterWeightHash(const CheckpointManifest& manifest, uint32_t cluster) {
  Sha256 hash;
  for (const CheckpointFile& file : manifest.files()) {
    if (file.cluster() == cluster) hash.Update(file.weights_sha256());
  }
  return hash.FinishHex();
}

std::vector<uint64_t> CompleteCheckpoints(const std::string& run_dir) {
  std::vector<uint64_t> steps;
  for (const uint64_t step : CheckpointFolders(run_dir)) {
    if (ReadManifest(run_dir, step).ok()) steps.push_back(step);
  }
  return steps;
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& run_dir, uint64_t step) {
  const std::string path = ManifestPath(run_dir, step);
  CheckpointManifest manifest;
  RETURN_IF_ERROR(FromJsonFile(path, &manifest));
  if (manifest.format() != kFormat) {
    return absl::DataLossError(
        absl::StrCat(path, ": format ", manifest.format(), " is not known; this version reads ", kFormat));
  }
  if (manifest.step() != step) {
    return absl::DataLossError(absl::StrCat(path, ": it says step ", manifest.step(), ", its folder says ", step));
  }
  RETURN_IF_ERROR(CheckFileList(manifest, path));
  if (manifest.weight_hash() != WeightHash(manifest)) {
    return absl::DataLossError(absl::StrCat(path, ": weight_hash does not belong to the files listed"));
  }
  return manifest;
}

absl::Status VerifyCheckpoint(const std::string& run_dir, const CheckpointManifest& manifest) {
  const std::string folder = CheckpointDir(run_dir, manifest.step());
  RETURN_IF_ERROR(CheckFileList(manifest, folder));
  for (const CheckpointFile& file : manifest.files()) {
    const std::string path = absl::StrCat(folder, "/", file.name());
    RETURN_IF_ERROR(CheckSize(path, file.bytes()));
    ASSIGN_OR_RETURN(const std::string hash, Sha256OfFile(path));
    if (hash != file.sha256()) {
      return absl::DataLossError(
          absl::StrCat(path, " is damaged: its SHA-256 is ", hash, ", the manifest says ", file.sha256()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointManifest> NewestVerified(const std::string& run_dir, std::vector<std::string>* rejected) {
  const std::vector<uint64_t> steps = CheckpointFolders(run_dir);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    absl::StatusOr<CheckpointManifest> manifest = ReadManifest(run_dir, *step);
    absl::Status status = manifest.status();
    if (status.ok()) status = VerifyCheckpoint(run_dir, *manifest);
    if (status.ok()) return manifest;
    if (rejected == nullptr) continue;
    rejected->push_back(absl::IsNotFound(status) ? absl::StrCat("checkpoint of step ", *step, ": incomplete, ",
                                                                ManifestPath(run_dir, *step), " was not written")
                                                 : absl::StrCat("checkpoint of step ", *step, ": ", status.message()));
  }
  return absl::NotFoundError(absl::StrCat("no complete checkpoint in ", CheckpointsDir(run_dir)));
}

absl::Status PruneCheckpoints(const std::string& run_dir, uint32_t keep) {
  const std::vector<uint64_t> complete = CompleteCheckpoints(run_dir);
  if (complete.empty()) return absl::OkStatus();
  std::set<uint64_t> kept;
  for (size_t i = 0; i < complete.size() && i < std::max(keep, 1u); ++i) kept.insert(complete[complete.size() - 1 - i]);
  if (kept.size() < complete.size()) {
    // Usually the newest one verifies and this reads one checkpoint; if none of the kept ones does, an older one stays.
    if (const auto verified = NewestVerified(run_dir, nullptr); verified.ok()) kept.insert(verified->step());
  }
  for (const uint64_t step : CheckpointFolders(run_dir)) {
    if (step < complete.back() && kept.count(step) == 0) RETURN_IF_ERROR(DeleteCheckpoint(run_dir, step));
  }
  return absl::OkStatus();
}

absl::Status DiscardIncomplete(const std::string& run_dir, uint64_t step) {
  if (ReadManifest(run_dir, step).ok()) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint of step ", step, " is complete; it stays"));
  }
  return DeleteCheckpoint(run_dir, step);
}

absl::Status WriteRunRecord(const std::string& run_dir, const RunRecord& record) {
  ASSIGN_OR_RETURN(const std::string text, ToJson(record));
  return WriteDurably(SystemFiles(), run_dir, kRecordName, text);
}

absl::StatusOr<RunRecord> ReadRunRecord(const std::string& run_dir) {
  RunRecord record;
  RETURN_IF_ERROR(FromJsonFile(absl::StrCat(run_dir, "/", kRecordName), &record));
  return record;
}

}  // namespace stagecoach
