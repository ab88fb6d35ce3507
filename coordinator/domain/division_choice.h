// Which of several divisions of a fleet into clusters a run takes: among those within 2 % of the fastest the one with
// the shortest loop latency (less staleness), and of those within 5 % of that the one with the fewest clusters, because
// every cluster more averages over more weights that have drifted apart.
//
// Threading: pure function.
#pragma once

#include <cstddef>
#include <vector>

namespace stagecoach {

struct DivisionFigures {
  size_t clusters = 1;
  double tokens_per_second = 0;
  double loop_seconds = 0;  // L of the slowest loop
};

// Index of the choice; the first of equals. Precondition: not empty.
size_t BestDivision(const std::vector<DivisionFigures>& divisions);

}  // namespace stagecoach
