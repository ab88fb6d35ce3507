// Collects the parts of checkpoints (one file a unit, from whichever stage holds it) until one is complete.
//
// Threading: a value, confined to the coordinator loop. Errors: INVALID_ARGUMENT: a part that cannot be; ABORTED: the
// stage could not write it, the whole checkpoint is given up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

struct CheckpointPartFact {
  uint64_t step = 0;
  uint32_t unit = 0;
  std::string file, sha256, weights_sha256;
  uint64_t bytes = 0;
  std::string error;
};

class CheckpointAssembly {
 public:
  explicit CheckpointAssembly(uint32_t num_units) : num_units_(num_units) {}

  absl::Status OnPart(const CheckpointPartFact& part);
  // The oldest step <= steps_reported that has all parts, taken out.
  std::optional<std::vector<CheckpointPartFact>> TakeComplete(uint64_t steps_reported);

 private:
  const uint32_t num_units_;
  std::map<uint64_t, std::map<uint32_t, CheckpointPartFact>> open_;
  std::set<uint64_t> failed_;
};

}  // namespace stagecoach
