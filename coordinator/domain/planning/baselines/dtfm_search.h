// DT-FM's scheduler: a genetic search over divisions into equal groups whose offspring are improved by circular
// Kernighan-Lin moves (arXiv 2206.01288 and its code).
//
// Population 100, 4,900 offspring. An offspring takes the groups of 5 devices from one parent and the rest from the
// other, sizes are repaired, and chains of moves C_1 -> C_2 -> ... -> C_1 are made for as long as the sum of
//
//   gain(d, C_j -> C_j') = mean of w(d, C_j') - w(d, fastest partner in C_j),    w = alpha + c_pp / beta
//
// is positive: devices leave groups that hold close partners, because partners of one pipeline are in different groups.
// It replaces the worse parent unless it is worse than both. (The public code assigns to random.seed instead of calling
// it, and compares with a truth value when it accepts; here it is as the paper has it.)
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "coordinator/domain/planning/baselines/division.h"
#include "coordinator/domain/planning/baselines/dtfm_cost.h"

namespace stagecoach {

inline constexpr uint32_t kMostDtfmWorkers = 128;  // bounds the search, whose time grows with the square
inline constexpr uint32_t kMostDtfmStages = 8;     // the paper's depth; the path over groups is exact: 2^D_PP

// Groups of least COMM that the search finds. network.devices is a multiple of num_groups.
DtfmGroups SearchDtfmGroups(const DtfmNetwork& network, uint32_t num_groups, uint64_t seed);

// alpha: round trips; beta: what the slower direction of a pair can carry; c_pp: the frames of a step; c_dp: what a
// stage averages in a step. Workers that do not reach each other are a long way apart.
DtfmNetwork DtfmNetworkOf(const CostModel& costs, uint32_t num_groups, uint32_t devices);

// The pipelines of `stages` groups, equal cuts. What is left over of the fleet, the last in order of registration, has
// no stage. stages <= kMostDtfmStages, costs.last_point(), number of workers <= kMostDtfmWorkers.
Division DtfmDivision(const CostModel& costs, uint32_t stages, uint64_t seed);

}  // namespace stagecoach
