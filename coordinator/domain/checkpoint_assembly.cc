#include "coordinator/domain/checkpoint_assembly.h"

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

// Stages are at most a few steps apart; more open checkpoints than this means that a stage does not write.
constexpr size_t kMaxOpen = 16;

bool IsHexDigest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

absl::Status CheckpointAssembly::OnPart(const CheckpointPartFact& part) {
  if (part.unit >= num_units_ || part.cluster >= num_clusters_) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint part of unit ", part.unit, ", the model has ", num_units_));
  }
  if (failed_.count(part.step) > 0) return absl::OkStatus();  // late parts of one that was given up
  if (!part.error.empty()) {
    open_.erase(part.step);
    failed_.insert(part.step);
    if (failed_.size() > kMaxOpen) failed_.erase(failed_.begin());
    return absl::AbortedError(absl::StrCat("checkpoint of step ", part.step, ", unit ", part.unit, ": ", part.error));
  }
  if (!IsHexDigest(part.sha256) || !IsHexDigest(part.weights_sha256) || part.file.empty() || part.file.size() > 255 ||
      part.file.find('/') != std::string::npos || part.file[0] == '.') {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint part of step ", part.step, ", unit ", part.unit,
                                                   ": its file name or hash is malformed"));
  }
  open_[part.step][{part.cluster, part.unit}] = part;
  while (open_.size() > kMaxOpen) open_.erase(open_.begin());
  return absl::OkStatus();
}

std::optional<std::vector<CheckpointPartFact>> CheckpointAssembly::TakeComplete(uint64_t steps_reported) {
  for (auto it = open_.begin(); it != open_.end() && it->first <= steps_reported; ++it) {
    if (it->second.size() != size_t{num_units_} * num_clusters_) continue;
    std::vector<CheckpointPartFact> parts;
    for (auto& [place, part] : it->second) parts.push_back(std::move(part));
    open_.erase(it);
    return parts;
  }
  return std::nullopt;
}

}  // namespace stagecoach
