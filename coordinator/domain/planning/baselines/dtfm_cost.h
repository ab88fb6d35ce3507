// Communication of a data-parallel, pipelined step as DT-FM reckons it (arXiv 2206.01288). D_DP * D_PP equal devices
// are divided into groups C_j, the holders of one stage each; computing is hidden.
//
//   DATAP     = max_j max_{d in C_j} sum_{d' != d in C_j} 2 (alpha_dd' + c_dp / (D_DP beta_dd'))
//   edge      = least heaviest alpha + c_pp / beta of a perfect matching between two groups
//   PIPELINEP = shortest open path over all groups
//   COMM      = DATAP + 2 PIPELINEP                                                                 seconds
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach {

struct DtfmNetwork {
  uint32_t devices = 0;
  std::vector<double> data_seconds;      // alpha + c_dp / (D_DP beta), row by row
  std::vector<double> pipeline_seconds;  // alpha + c_pp / beta, symmetric
};

using DtfmGroups = std::vector<std::vector<uint32_t>>;  // of one size

struct HeaviestMatching {
  double heaviest = 0;
  std::vector<uint32_t> partner;  // column of each row
};
// Perfect matching of `size` rows and columns whose heaviest weight is least.
HeaviestMatching MatchLightest(const std::vector<double>& weights, uint32_t size);

struct OpenPath {
  double length = 0;
  std::vector<uint32_t> order;
};
// Shortest path over all of 1 .. 20 places, from any to any. distances: symmetric, size * size.
OpenPath ShortestOpenPath(const std::vector<double>& distances, uint32_t size);

double DataParallelSeconds(const DtfmNetwork& network, const DtfmGroups& groups);
double CommunicationSeconds(const DtfmNetwork& network, const DtfmGroups& groups);

// The pipelines of COMM: groups in the order of the path, devices joined by the matchings.
std::vector<std::vector<uint32_t>> PipelinesOf(const DtfmNetwork& network, const DtfmGroups& groups);

}  // namespace stagecoach
