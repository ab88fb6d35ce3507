#include "common/cluster_rules.h"

namespace stagecoach {

ClusterSteps::ClusterSteps(std::vector<uint64_t> steps_per_round, uint32_t cluster) : own_(steps_per_round[cluster]) {
  round_ = 0;
  for (size_t c = 0; c < steps_per_round.size(); ++c) {
    if (c == cluster) before_ = round_;
    round_ += steps_per_round[c];
  }
}

std::vector<size_t> EqualClusterSizes(size_t workers, size_t clusters) {
  std::vector<size_t> sizes(clusters, workers / clusters);
  for (size_t c = 0; c < workers % clusters; ++c) ++sizes[c];
  return sizes;
}

}  // namespace stagecoach
