#include "coordinator/domain/planning/standbys.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace stagecoach {
namespace {

bool CanTakeOver(const CostModel& costs, uint32_t standby, const PlannedCluster& cluster, size_t stage) {
  const uint64_t limit = costs.fleet().workers[standby].memory_bytes;
  if (limit > 0 && cluster.stages[stage].memory_bytes > limit) return false;
  const auto reaches = [&](size_t neighbour) {
    return std::isfinite(costs.Edge(standby, cluster.stages[neighbour].worker).link_seconds);
  };
  return (stage == 0 || reaches(stage - 1)) && (stage + 1 == cluster.stages.size() || reaches(stage + 1));
}

}  // namespace

std::vector<PlannedStandby> AssignStandbys(const CostModel& costs, const FleetPlan& plan,
                                           double standby_stall_seconds) {
  struct Member {
    double benefit;
    const PlannedCluster* cluster;
    size_t stage;
  };
  std::vector<Member> members;
  const double saved = costs.assumptions().stall_seconds - standby_stall_seconds;
  for (const PlannedCluster& cluster : plan.clusters) {
    for (size_t stage = 0; stage < cluster.stages.size(); ++stage) {
      const double failures = costs.fleet().workers[cluster.stages[stage].worker].failures_per_hour;
      const double benefit = failures / 3600 * saved * cluster.goodput;
      if (benefit > 0) members.push_back({benefit, &cluster, stage});
    }
  }
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return a.benefit != b.benefit ? a.benefit > b.benefit
                                  : a.cluster->stages[a.stage].worker < b.cluster->stages[b.stage].worker;
  });
  std::vector<PlannedStandby> standbys;
  std::vector<uint32_t> free = plan.unused;
  for (const Member& member : members) {
    if (free.empty()) break;
    const auto standby = std::find_if(free.begin(), free.end(), [&](uint32_t worker) {
      return CanTakeOver(costs, worker, *member.cluster, member.stage);
    });
    if (standby == free.end()) continue;
    standbys.push_back({*standby, member.cluster->stages[member.stage].worker, member.benefit});
    free.erase(standby);
  }
  std::sort(standbys.begin(), standbys.end(),
            [](const PlannedStandby& a, const PlannedStandby& b) { return a.worker < b.worker; });
  return standbys;
}

}  // namespace stagecoach
