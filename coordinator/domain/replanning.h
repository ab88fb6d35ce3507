// Whether a run goes on with another plan when a worker of it is lost, and over whom.
//
// Threading: values and pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

using MonoTime = std::chrono::nanoseconds;

struct ReplanLimits {
  bool on_lost_worker = false;
  uint32_t most_per_hour = 6;
};

// New plans of the last hour. Each costs the steps since a checkpoint, measuring and loading: a fleet that loses
// workers all the time is better stopped and looked at.
class ReplanBudget {
 public:
  explicit ReplanBudget(uint32_t most_per_hour) : most_per_hour_(most_per_hour) {}

  bool Allows(MonoTime now) const;
  void Spend(MonoTime now);

 private:
  uint32_t most_per_hour_;
  std::deque<MonoTime> spent_;  // at most most_per_hour
};

// Workers of a run in pipeline order, cluster after cluster.
struct Placement {
  std::vector<std::string> members;
  std::vector<size_t> cluster_sizes;
};

// Without `lost`: the first of `standbys` takes its place. If there is none its cluster has one stage fewer; if it was
// the only stage there, the last worker of the largest cluster (the first of them) takes its place. nullopt: fewer
// workers than clusters are left. Precondition: `lost` is a member.
std::optional<Placement> PlacementWithout(Placement placement, absl::string_view lost,
                                          const std::vector<std::string>& standbys);

}  // namespace stagecoach
