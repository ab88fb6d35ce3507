// Divisions without any search: equal split, random, greedy by memory. None looks at rates or delays.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/domain/planning/baselines/division.h"

namespace stagecoach {

// Workers in order of registration, clusters of equal size (at most one member more), equal cuts: a division for each
// depth up to the number of cut intervals, or only the one of `clusters` > 0. Workers beyond the number of intervals
// of a cluster stay without a stage.
std::vector<Division> EqualDivisions(const CostModel& costs, uint32_t clusters);

// A random order, a random depth (or that of `clusters` > 0), random cuts: `tries` independent ones.
std::vector<Division> RandomDivisions(const CostModel& costs, uint32_t clusters, uint64_t seed, uint32_t tries);

// Most memory first: each worker takes as many units as fit, until the model is covered, then the next cluster begins.
// A worker that cannot hold the next unit, or cannot reach the one before it, is passed over by this cluster. At most
// `clusters` clusters if that is > 0.
Division GreedyMemoryDivision(const CostModel& costs, uint32_t clusters);

}  // namespace stagecoach
