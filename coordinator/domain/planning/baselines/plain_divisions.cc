#include "coordinator/domain/planning/baselines/plain_divisions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "common/rng_draws.h"
#include "coordinator/domain/planning/baselines/share_cuts.h"

namespace stagecoach {
namespace {

// Consecutive groups of `order` whose sizes differ by at most one, cut to at most `most` members.
WorkerGroups EqualGroups(const std::vector<uint32_t>& order, uint32_t clusters, uint32_t most) {
  WorkerGroups groups;
  const auto num = static_cast<uint64_t>(order.size());
  for (uint64_t c = 0; c < clusters; ++c) {
    const auto first = order.begin() + static_cast<int64_t>(c * num / clusters);
    const auto end = order.begin() + static_cast<int64_t>((c + 1) * num / clusters);
    groups.emplace_back(first, std::min(end, first + most));
  }
  return groups;
}

uint32_t ClustersOfDepth(uint32_t num_workers, uint32_t depth) { return (num_workers + depth - 1) / depth; }

std::vector<uint32_t> RandomCuts(uint32_t last, uint32_t stages, RngDraws* draws) {
  std::vector<uint32_t> inner(last - 1);
  std::iota(inner.begin(), inner.end(), 1);
  draws->Shuffle(&inner);
  inner.resize(stages - 1);
  inner.push_back(0);
  inner.push_back(last);
  std::sort(inner.begin(), inner.end());
  return inner;
}

}  // namespace

std::vector<Division> EqualDivisions(const CostModel& costs, uint32_t clusters) {
  const uint32_t num = costs.num_workers(), deepest = std::min(num, costs.last_point());
  std::vector<uint32_t> order(num);
  std::iota(order.begin(), order.end(), 0);
  std::vector<uint32_t> counts;
  for (uint32_t depth = 1; depth <= deepest && clusters == 0; ++depth) counts.push_back(ClustersOfDepth(num, depth));
  if (clusters > 0) counts.push_back(clusters);
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::vector<Division> divisions;
  for (const uint32_t count : counts) {
    Division& division = divisions.emplace_back();
    for (std::vector<uint32_t>& group : EqualGroups(order, count, costs.last_point())) {
      std::vector<uint32_t> points = EqualCuts(costs, static_cast<uint32_t>(group.size()));
      division.push_back({std::move(group), std::move(points)});
    }
  }
  return divisions;
}

std::vector<Division> RandomDivisions(const CostModel& costs, uint32_t clusters, uint64_t seed, uint32_t tries) {
  const uint32_t num = costs.num_workers(), deepest = std::min(num, costs.last_point());
  std::vector<Division> divisions;
  for (uint32_t attempt = 0; attempt < tries; ++attempt) {
    RngDraws draws(seed, RngPurpose::kPlanBaseline, attempt);
    std::vector<uint32_t> order(num);
    std::iota(order.begin(), order.end(), 0);
    draws.Shuffle(&order);
    const uint32_t count = clusters > 0 ? clusters : ClustersOfDepth(num, 1 + draws.Below(deepest));
    Division& division = divisions.emplace_back();
    for (std::vector<uint32_t>& group : EqualGroups(order, count, costs.last_point())) {
      std::vector<uint32_t> points = RandomCuts(costs.last_point(), static_cast<uint32_t>(group.size()), &draws);
      division.push_back({std::move(group), std::move(points)});
    }
  }
  return divisions;
}

Division GreedyMemoryDivision(const CostModel& costs, uint32_t clusters) {
  const auto memory = [&](uint32_t worker) {
    const uint64_t bytes = costs.fleet().workers[worker].memory_bytes;
    return bytes > 0 ? bytes : std::numeric_limits<uint64_t>::max();
  };
  std::vector<uint32_t> left(costs.num_workers());
  std::iota(left.begin(), left.end(), 0);
  std::stable_sort(left.begin(), left.end(), [&](uint32_t a, uint32_t b) { return memory(a) > memory(b); });
  Division division;
  while (!left.empty() && (clusters == 0 || division.size() < clusters)) {
    ClusterDraft draft;
    draft.points.push_back(0);
    std::vector<uint32_t> passed;
    size_t next = 0;
    for (; next < left.size() && draft.points.back() < costs.last_point(); ++next) {
      const uint32_t worker = left[next], begin = draft.points.back();
      uint32_t end = begin;
      while (end < costs.last_point() && costs.Fits(worker, begin, end + 1)) ++end;
      const bool reachable =
          draft.workers.empty() || std::isfinite(costs.Edge(draft.workers.back(), worker).link_seconds);
      if (end == begin || !reachable) {
        passed.push_back(worker);
        continue;
      }
      draft.workers.push_back(worker);
      draft.points.push_back(end);
    }
    if (draft.points.back() < costs.last_point()) break;
    passed.insert(passed.end(), left.begin() + static_cast<int64_t>(next), left.end());
    left = std::move(passed);
    division.push_back(std::move(draft));
  }
  return division;
}

}  // namespace stagecoach
