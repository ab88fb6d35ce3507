// What a baseline proposes: clusters with the order of their members and their cuts, not yet judged.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

using Division = std::vector<ClusterDraft>;

// Workers in pipeline order, for each cluster.
using WorkerGroups = std::vector<std::vector<uint32_t>>;

}  // namespace stagecoach
