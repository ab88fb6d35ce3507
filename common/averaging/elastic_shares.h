// How much work each cluster gets so that all end together: microbatches a step (M_c) or steps a round (H_c).
//
//   M_c = (T - o_c)/t*_c ,   T = (M + sum_c o_c/t*_c) / sum_c (1/t*_c)
// Clusters with M_c < 1 are dropped and the rest solved again; rounding by largest remainder (idea of Cannikin,
// 2402.05302; formula derived in the design pages, section 11).
//
// Threading: pure functions. Ties: the lower cluster number first.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace stagecoach {

struct ClusterSpeed {
  double unit_seconds = 0;      // t*_c: one more microbatch (or step)
  double overhead_seconds = 0;  // o_c: bubble of a synchronous step, averaging that is not hidden
};

// Units of work of each cluster; they sum to `total`. A dropped cluster has 0. Needs at least one positive unit time.
std::vector<uint64_t> ElasticShares(uint64_t total, absl::Span<const ClusterSpeed> clusters);

// Seconds until the last cluster is done.
double FinishSeconds(absl::Span<const uint64_t> shares, absl::Span<const ClusterSpeed> clusters);

// `current`, unless ElasticShares would be done more than 5 % sooner: shares do not follow every jitter.
std::vector<uint64_t> UpdatedShares(absl::Span<const uint64_t> current, uint64_t total,
                                    absl::Span<const ClusterSpeed> clusters);

}  // namespace stagecoach
