#include "common/averaging/elastic_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stagecoach {
namespace {

constexpr double kHysteresis = 0.05;

}  // namespace

std::vector<uint64_t> ElasticShares(uint64_t total, absl::Span<const ClusterSpeed> clusters) {
  std::vector<size_t> live;
  for (size_t c = 0; c < clusters.size(); ++c) {
    if (clusters[c].unit_seconds > 0) live.push_back(c);
  }
  std::vector<double> exact(clusters.size(), 0);
  while (!live.empty()) {
    double rate = 0, overhead = 0;
    for (const size_t c : live) {
      rate += 1 / clusters[c].unit_seconds;
      overhead += clusters[c].overhead_seconds / clusters[c].unit_seconds;
    }
    const double t = (static_cast<double>(total) + overhead) / rate;
    auto least = live.begin();
    for (auto c = live.begin(); c != live.end(); ++c) {
      exact[*c] = (t - clusters[*c].overhead_seconds) / clusters[*c].unit_seconds;
      if (exact[*c] < exact[*least]) least = c;
    }
    if (exact[*least] >= 1 || live.size() == 1) break;
    exact[*least] = 0;
    live.erase(least);
  }
  std::vector<uint64_t> shares(clusters.size(), 0);
  uint64_t dealt = 0;
  for (const size_t c : live) {
    shares[c] = std::min(total - dealt, static_cast<uint64_t>(std::max(0.0, std::floor(exact[c]))));
    dealt += shares[c];
  }
  std::stable_sort(live.begin(), live.end(), [&](size_t a, size_t b) {
    return exact[a] - std::floor(exact[a]) > exact[b] - std::floor(exact[b]);
  });
  for (size_t i = 0; dealt < total && !live.empty(); ++i, ++dealt) ++shares[live[i % live.size()]];
  return shares;
}

double FinishSeconds(absl::Span<const uint64_t> shares, absl::Span<const ClusterSpeed> clusters) {
  double last = 0;
  for (size_t c = 0; c < shares.size(); ++c) {
    if (shares[c] == 0) continue;
    last = std::max(last, clusters[c].overhead_seconds + static_cast<double>(shares[c]) * clusters[c].unit_seconds);
  }
  return last;
}

std::vector<uint64_t> UpdatedShares(absl::Span<const uint64_t> current, uint64_t total,
                                    absl::Span<const ClusterSpeed> clusters) {
  std::vector<uint64_t> fresh = ElasticShares(total, clusters);
  const bool comparable =
      current.size() == clusters.size() && std::accumulate(current.begin(), current.end(), uint64_t{0}) == total;
  if (!comparable) return fresh;
  for (size_t c = 0; c < clusters.size(); ++c) {
    if (current[c] > 0 && clusters[c].unit_seconds <= 0) return fresh;  // it has gone
  }
  if (FinishSeconds(fresh, clusters) < (1 - kHysteresis) * FinishSeconds(current, clusters)) return fresh;
  return {current.begin(), current.end()};
}

}  // namespace stagecoach
