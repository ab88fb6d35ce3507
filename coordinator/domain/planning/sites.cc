#include "coordinator/domain/planning/sites.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

namespace stagecoach {
namespace {

// Every pair is looked at: more workers than this have regions.
constexpr uint32_t kMostByLinks = 256;
// Costs of links that part groups: the largest jumps between sorted costs.
constexpr size_t kMostThresholds = 3;

Sites JoinSmall(const CostModel& costs, Sites sites) {
  while (sites.size() > 1) {
    const auto small = std::find_if(sites.begin(), sites.end(), [&](const auto& s) { return !MayHoldModel(costs, s); });
    if (small == sites.end()) break;
    size_t nearest = sites.size();
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < sites.size(); ++i) {
      if (&sites[i] == &*small) continue;
      const double hop = costs.Edge(small->front(), sites[i].front()).hop_seconds;
      if (nearest == sites.size() || hop < least) least = hop, nearest = i;
    }
    std::vector<uint32_t> joined = std::move(*small);
    sites[nearest].insert(sites[nearest].end(), joined.begin(), joined.end());
    std::sort(sites[nearest].begin(), sites[nearest].end());
    sites.erase(small);
  }
  return sites;
}

Sites ByRegion(const CostModel& costs) {
  Sites sites(costs.links().num_regions());
  for (uint32_t w = 0; w < costs.num_workers(); ++w) sites[costs.links().region(w)].push_back(w);
  std::erase_if(sites, [](const auto& site) { return site.empty(); });
  return sites;
}

// Connected by links of at most `seconds`.
Sites ByLinks(const CostModel& costs, double seconds) {
  const uint32_t n = costs.num_workers();
  std::vector<uint32_t> site_of(n, n);
  Sites sites;
  for (uint32_t first = 0; first < n; ++first) {
    if (site_of[first] != n) continue;
    const auto site = static_cast<uint32_t>(sites.size());
    sites.push_back({first});
    site_of[first] = site;
    for (size_t next = 0; next < sites[site].size(); ++next) {
      for (uint32_t w = 0; w < n; ++w) {
        if (site_of[w] != n || costs.Edge(sites[site][next], w).hop_seconds > seconds) continue;
        site_of[w] = site;
        sites[site].push_back(w);
      }
    }
    std::sort(sites[site].begin(), sites[site].end());
  }
  return sites;
}

std::vector<double> Thresholds(const CostModel& costs) {
  std::vector<double> hops;
  for (uint32_t i = 0; i < costs.num_workers(); ++i) {
    for (uint32_t j = i + 1; j < costs.num_workers(); ++j) hops.push_back(costs.Edge(i, j).hop_seconds);
  }
  std::sort(hops.begin(), hops.end());
  std::vector<std::pair<double, double>> jumps;  // ratio, cost below
  for (size_t i = 1; i < hops.size(); ++i) {
    if (hops[i - 1] < hops[i] && hops[i - 1] > 0) jumps.emplace_back(hops[i] / hops[i - 1], hops[i - 1]);
  }
  std::sort(jumps.rbegin(), jumps.rend());
  std::vector<double> thresholds;
  for (size_t i = 0; i < std::min(jumps.size(), kMostThresholds); ++i) thresholds.push_back(jumps[i].second);
  return thresholds;
}

}  // namespace

bool MayHoldModel(const CostModel& costs, const std::vector<uint32_t>& workers) {
  uint64_t memory = 0;
  for (const uint32_t worker : workers) {
    const uint64_t own = costs.fleet().workers[worker].memory_bytes;
    if (own == 0) return true;  // no limit known
    memory += own;
  }
  // Stages need working space besides: the sum is the least that could do.
  return memory >= costs.MemoryBytes(0, costs.last_point());
}

std::vector<Sites> SitesTried(const CostModel& costs) {
  std::vector<uint32_t> everybody(costs.num_workers());
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<Sites> tried;
  const auto attempt = [&](Sites sites) {
    sites = JoinSmall(costs, std::move(sites));
    if (std::find(tried.begin(), tried.end(), sites) == tried.end()) tried.push_back(std::move(sites));
  };
  const bool one_region = costs.links().num_regions() <= 1;
  // Beyond this many workers a second division costs seconds, and regions say enough.
  if (one_region || costs.num_workers() <= kMostByLinks) attempt({everybody});
  if (!one_region) attempt(ByRegion(costs));
  if (costs.num_workers() <= kMostByLinks && !costs.fleet().links.empty()) {
    for (const double seconds : Thresholds(costs)) attempt(ByLinks(costs, seconds));
  }
  return tried;
}

}  // namespace stagecoach
