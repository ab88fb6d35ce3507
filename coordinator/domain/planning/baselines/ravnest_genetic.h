// Ravnest's cluster formation (arXiv 2401.01728, and its public code): a genetic algorithm on memory and bandwidth of
// each node. A node's gene is its cluster.
//
//   penalty = 100 P_L + P_t
//   P_L = sum over used clusters of max(0, L - sum RAM_i)                       MB
//   P_t = max_c S_c - min_c S_c,   S_c = sum of floor(RAM_i / bandwidth_i)      MB a Mbit/s
//
// What follows from it, links or not: one cluster of all nodes has no penalty as long as the model fits, pairs of nodes
// do not matter, and nothing is found where all penalties are at least 1,000,000 (10 GB missing).
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/domain/planning/baselines/division.h"

namespace stagecoach {

struct RavnestNode {
  double ram_mb = 0;
  double bandwidth_mbit = 0;  // > 0
};

inline constexpr uint32_t kRavnestClusters = 5;  // the most that its code forms

double RavnestPenalty(const std::vector<RavnestNode>& nodes, double model_mb, const std::vector<uint8_t>& genes);

// Genes, 0 .. most_clusters - 1, of least penalty in 500 generations of 200; nullopt: none below 1,000,000. Its
// crossover needs two nodes: fewer than two are one cluster. 1 <= most_clusters <= 256.
std::optional<std::vector<uint8_t>> EvolveRavnestClusters(const std::vector<RavnestNode>& nodes, double model_mb,
                                                          uint32_t most_clusters, uint64_t seed);

enum class RavnestCuts {
  kByMemory,  // the paper: shares of the model follow memory
  kEqual,     // the code: RoundedEqualShares
};

// Bandwidth: the slower of uplink and downlink. A worker without a limit of memory counts as one that holds the model,
// one without a limit of rate as infinitely fast. most_clusters 0: kRavnestClusters. Empty: nothing found; a cluster
// whose shares leave a member without units is left out.
Division RavnestDivision(const CostModel& costs, RavnestCuts cuts, uint32_t most_clusters, uint64_t seed);

}  // namespace stagecoach
