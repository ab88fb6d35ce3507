// Collects the parts of checkpoints (one file a unit and cluster, from whichever stage holds it) until one is complete.
//
// Threading: a value, confined to the coordinator loop. Errors: INVALID_ARGUMENT: a part that cannot be; ABORTED: the
// stage could not write it, this checkpoint is given up (said once); the run goes on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

struct CheckpointPartFact {
  uint64_t step = 0;
  uint32_t cluster = 0, unit = 0;
  std::string file, sha256, weights_sha256;
  uint64_t bytes = 0;
  std::string error;
};

class CheckpointAssembly {
 public:
  explicit CheckpointAssembly(uint32_t num_units, uint32_t num_clusters = 1)
      : num_units_(num_units), num_clusters_(num_clusters) {}

  absl::Status OnPart(const CheckpointPartFact& part);
  // The oldest step <= steps_reported that has all parts, taken out: by cluster, then unit.
  std::optional<std::vector<CheckpointPartFact>> TakeComplete(uint64_t steps_reported);

 private:
  const uint32_t num_units_, num_clusters_;
  std::map<uint64_t, std::map<std::pair<uint32_t, uint32_t>, CheckpointPartFact>> open_;
  std::set<uint64_t> failed_;
};

}  // namespace stagecoach
