// Which data a cluster trains on: every cluster counts its own steps t, and each of them is one global step g of the
// run. Round r of H_c steps for each cluster covers sum(H) global steps, dealt in intervals by ascending cluster:
//
//   g(c, t) = r * sum(H) + (H_0 + ... + H_{c-1}) + (t mod H_c),   r = floor(t / H_c)
//
// The map (c, t) -> g is one to one, so every position of the data is used exactly once, and it depends on indices
// only. In a run of one cluster g(t) = t.
//
// Threading: a value; const methods are safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stagecoach {

class ClusterSteps {
 public:
  ClusterSteps() : ClusterSteps({1}, 0) {}
  // Precondition: cluster < steps_per_round.size(), every entry >= 1.
  ClusterSteps(std::vector<uint64_t> steps_per_round, uint32_t cluster);

  uint64_t GlobalStep(uint64_t step) const { return step / own_ * round_ + before_ + step % own_; }
  // Index of microbatch n = tM + j of this cluster among those of all clusters: data, dropout and rounding follow it.
  uint64_t GlobalMicrobatch(uint64_t n, uint32_t microbatches_per_step) const {
    return GlobalStep(n / microbatches_per_step) * microbatches_per_step + n % microbatches_per_step;
  }

 private:
  uint64_t own_ = 1, before_ = 0, round_ = 1;  // H_c, sum of those before it, sum of all
};

// Sizes of `clusters` groups of as equal size as possible, contiguous in the given order, the first ones larger.
// Precondition: 1 <= clusters <= workers.
std::vector<size_t> EqualClusterSizes(size_t workers, size_t clusters);

}  // namespace stagecoach
