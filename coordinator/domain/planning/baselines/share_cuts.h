// Cuts that follow given shares of the model, as planners without a cost model make them.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

// Stages of equally many cut intervals; the first ones have one more where they do not divide. 1 <= stages <=
// costs.last_point(). Returns cut points.
std::vector<uint32_t> EqualCuts(const CostModel& costs, uint32_t stages);

// A stage takes intervals for as long as its parameters stay within share * all parameters, at least one interval; the
// last stage takes the rest. nullopt: a stage is left without an interval.
std::optional<std::vector<uint32_t>> CutsByShares(const CostModel& costs, const std::vector<double>& shares);

// Ravnest's code: 1/m rounded to one decimal place, the last one the remainder, which is 0 or negative for most m > 10.
std::vector<double> RoundedEqualShares(uint32_t stages);

}  // namespace stagecoach
