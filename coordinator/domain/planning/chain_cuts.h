// Cuts of the model over workers in a given order, some of which may be left out: g[i][k] = least bottleneck of
// covering the first k cut points with worker i last.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

// The draft with most goodput that keeps the order; may_skip: workers may be left out. nullopt: nothing fits, or every
// draft does fewer than `worth` microbatches a second.
std::optional<ClusterDraft> CutChain(const CostModel& costs, const std::vector<uint32_t>& order, bool may_skip,
                                     double worth = 0);

}  // namespace stagecoach
