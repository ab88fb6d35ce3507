// An upper bound on the goodput of every plan, at any size of the fleet (docs/planning.md, "Bound").
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <memory>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

// No plan with exactly `clusters` clusters (0: with any number) does more microbatches a second, with whatever window.
//
// For prices pi of units, >= 0, of sum 1: a cluster covers every unit once, so its rate is the sum over its members of
// rate * pi(range), and a member's rate is at most reliability / stage seconds. Hence
//   sum of rates <= sum over workers of max over ranges of reliability * pi(range) / stage(range).
// The prices are improved by multiplicative weights; every step is a valid bound, the least is kept. One cluster alone
// is bounded apart: within T every unit must fit some worker and the longest ranges of all must cover the model.
double GoodputBound(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                    double stall_seconds, uint32_t clusters);

}  // namespace stagecoach
