// Divides a fleet into sites: groups of workers with fast links among them.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

using Sites = std::vector<std::vector<uint32_t>>;

// Whether their memory together may be enough for the model; false: it is not.
bool MayHoldModel(const CostModel& costs, const std::vector<uint32_t>& workers);

// Divisions worth a try, best guess last: everybody together; the regions of the fleet; where links were measured
// between workers, groups joined by links of at most some cost. In all of them a site whose memory cannot hold the
// model is joined to the site that is nearest to it.
std::vector<Sites> SitesTried(const CostModel& costs);

}  // namespace stagecoach
