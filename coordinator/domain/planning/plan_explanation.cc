#include "coordinator/domain/planning/plan_explanation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/domain/planning/chain_cuts.h"

namespace stagecoach {
namespace {

constexpr size_t kMostLeftOutNamed = 8;
constexpr double kMuchFaster = 1.5;       // of a rate that is tried on the bottleneck
constexpr double kWorthSaying = 0.01;     // of the cluster's rate
constexpr size_t kMostClustersTried = 4;  // for what would help: the slowest ones

double Gib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

ClusterDraft DraftOf(const CostModel& costs, const PlannedCluster& cluster) {
  ClusterDraft draft;
  draft.points.push_back(0);
  for (const PlannedStage& stage : cluster.stages) {
    uint32_t point = draft.points.back();
    while (costs.UnitAt(point) < stage.end_unit) ++point;
    draft.workers.push_back(stage.worker);
    draft.points.push_back(point);
  }
  return draft;
}

// The stage with the largest share of T.
const PlannedStage& SlowestStage(const PlannedCluster& cluster) {
  const auto seconds = [](const PlannedStage& stage) {
    return std::max({stage.compute_seconds, stage.up_seconds, stage.down_seconds});
  };
  return *std::max_element(cluster.stages.begin(), cluster.stages.end(),
                           [&](const auto& a, const auto& b) { return seconds(a) < seconds(b); });
}

// Relative gain of a cluster, cut anew in its order, in a fleet that was changed.
double Gain(const CostModel& costs, const Fleet& changed, const std::vector<uint32_t>& order, double goodput) {
  const auto links = std::make_shared<const LinkCosts>(changed, costs.model().frame_bytes);
  const CostModel better(costs.model(), changed, links, costs.assumptions());
  const std::optional<ClusterDraft> draft = CutChain(better, order, /*may_skip=*/true);
  return draft ? better.GoodputOf(*draft) / goodput - 1 : 0;
}

std::vector<std::string> WhatWouldHelp(const CostModel& costs, const FleetPlan& plan) {
  std::vector<const PlannedCluster*> slowest;
  for (const PlannedCluster& cluster : plan.clusters) slowest.push_back(&cluster);
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const auto* a, const auto* b) { return a->microbatch_seconds > b->microbatch_seconds; });
  slowest.resize(std::min(slowest.size(), kMostClustersTried));
  std::vector<std::pair<double, std::string>> ideas;
  for (const PlannedCluster* cluster : slowest) {
    // Only the members and what is between them matter: the fleet is cut down to them.
    Fleet own;
    own.regions = costs.fleet().regions;
    std::vector<uint32_t> order;
    const ClusterDraft draft = DraftOf(costs, *cluster);
    for (uint32_t i = 0; i < draft.workers.size(); ++i) {
      own.workers.push_back(costs.fleet().workers[draft.workers[i]]);
      order.push_back(i);
      for (uint32_t j = 0; j < draft.workers.size(); ++j) {
        const auto link = costs.fleet().links.find({draft.workers[i], draft.workers[j]});
        if (link != costs.fleet().links.end()) own.links[{i, j}] = link->second;
      }
    }
    const PlannedStage& slow = SlowestStage(*cluster);
    const auto at = static_cast<uint32_t>(std::find(draft.workers.begin(), draft.workers.end(), slow.worker) -
                                          draft.workers.begin());
    const std::string& name = own.workers[at].name;
    Fleet twin = own;
    twin.workers.push_back(own.workers[at]);
    twin.workers.back().name = absl::StrCat(name, "'");
    for (uint32_t i = 0; i < own.workers.size(); ++i) {
      const auto link = own.links.find({i, at}), back = own.links.find({at, i});
      const auto added = static_cast<uint32_t>(own.workers.size());
      if (link != own.links.end()) twin.links[{i, added}] = link->second;
      if (back != own.links.end()) twin.links[{added, i}] = back->second;
    }
    std::vector<uint32_t> longer = order;
    longer.insert(longer.begin() + at + 1, static_cast<uint32_t>(own.workers.size()));
    ideas.emplace_back(Gain(costs, twin, longer, cluster->goodput),
                       absl::StrCat("a second worker like ", name, " beside it"));
    for (const bool up : {true, false}) {
      const double rate = up ? own.workers[at].up_bytes_per_second : own.workers[at].down_bytes_per_second;
      if (rate <= 0) continue;
      Fleet faster = own;
      (up ? faster.workers[at].up_bytes_per_second : faster.workers[at].down_bytes_per_second) = rate * kMuchFaster;
      ideas.emplace_back(
          Gain(costs, faster, order, cluster->goodput),
          absl::StrFormat("%s of %s at %.4g Mbit/s", up ? "uplink" : "downlink", name, rate * kMuchFaster * 8 / 1e6));
    }
  }
  std::stable_sort(ideas.begin(), ideas.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> lines;
  constexpr size_t kMostIdeas = 3;
  for (const auto& [gain, what] : ideas) {
    if (gain < kWorthSaying || lines.size() == kMostIdeas) break;
    lines.push_back(absl::StrFormat("would help: %s: %+.0f %% of its cluster", what, gain * 100));
  }
  return lines;
}

std::string WhyLeftOut(const CostModel& costs, uint32_t worker) {
  const FleetWorker& facts = costs.fleet().workers[worker];
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t a = 0; a < costs.last_point(); ++a) least = std::min(least, costs.MemoryBytes(a, a + 1));
  if (facts.memory_bytes > 0 && facts.memory_bytes < least) {
    return absl::StrFormat("the smallest part of the model needs %.2f GiB, it has %.2f", Gib(least),
                           Gib(facts.memory_bytes));
  }
  return "with it the fleet is not faster";
}

}  // namespace

std::vector<std::string> ExplainPlan(const CostModel& costs, const FleetPlan& plan) {
  const double tokens = costs.model().tokens_per_microbatch;
  std::vector<std::string> lines;
  lines.push_back(absl::StrFormat(
      "predicted %.0f tokens/s with %d cluster%s, N_max %d; no plan does more than %.0f (%.3f)%s",
      plan.goodput * tokens, plan.clusters.size(), plan.clusters.size() == 1 ? "" : "s", costs.assumptions().window,
      plan.bound * tokens, plan.goodput / plan.bound, plan.exact ? ": proven best" : ""));
  for (std::string& line : WhatWouldHelp(costs, plan)) lines.push_back(std::move(line));
  for (size_t i = 0; i < std::min(plan.unused.size(), kMostLeftOutNamed); ++i) {
    const uint32_t worker = plan.unused[i];
    lines.push_back(absl::StrCat("left out: ", costs.fleet().workers[worker].name, ": ", WhyLeftOut(costs, worker)));
  }
  if (plan.unused.size() > kMostLeftOutNamed) {
    lines.push_back(absl::StrCat("left out: ", plan.unused.size() - kMostLeftOutNamed, " more"));
  }
  return lines;
}

absl::Status CheckFacts(const PlanModel& model, const Fleet& fleet) {
  const auto sensible = [](double x) { return std::isfinite(x) && x >= 0; };
  if (model.units.empty() || model.cut_allowed.size() != model.units.size() || model.microbatches == 0) {
    return absl::InvalidArgumentError("the model has no units, or no microbatches in a step");
  }
  if (fleet.workers.empty()) return absl::InvalidArgumentError("the fleet has no workers");
  std::set<std::string> names;
  for (const FleetWorker& worker : fleet.workers) {
    if (!names.insert(worker.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two workers are called ", worker.name));
    }
    bool good = sensible(worker.up_bytes_per_second) && sensible(worker.down_bytes_per_second) &&
                sensible(worker.failures_per_hour);
    for (const KindSeconds& kind : worker.kinds) {
      good = good && sensible(kind.forward) && sensible(kind.backward) && sensible(kind.update);
    }
    for (const PlanUnit& unit : model.units) good = good && unit.kind < worker.kinds.size();
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", worker.name, ": a time or rate is missing, negative or no number"));
    }
  }
  const auto link_good = [&](const FleetLink& link) {
    return sensible(link.rtt_seconds) && sensible(link.bytes_per_second);
  };
  for (const auto& [pair, link] : fleet.regions) {
    if (!link_good(link)) {
      return absl::InvalidArgumentError(absl::StrCat("link ", pair.first, " -> ", pair.second, ": no sensible number"));
    }
  }
  for (const auto& [pair, link] : fleet.links) {
    if (pair.first >= fleet.workers.size() || pair.second >= fleet.workers.size() || !link_good(link)) {
      return absl::InvalidArgumentError(
          absl::StrCat("link ", pair.first, " -> ", pair.second, ": no such worker, or no sensible number"));
    }
  }
  return absl::OkStatus();
}

absl::Status WhyThereIsNoPlan(const PlanModel& model, const Fleet& fleet, uint32_t clusters) {
  const auto num_workers = static_cast<uint32_t>(fleet.workers.size());
  if (clusters > num_workers) {
    return absl::FailedPreconditionError(
        absl::StrCat(clusters, " clusters need as many workers; there are ", num_workers));
  }
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  const CostModel costs(model, fleet, links, {1, 1, 0});
  uint64_t largest = 0, sum = 0;
  std::string largest_name;
  bool limited = true;
  for (const FleetWorker& worker : fleet.workers) {
    limited = limited && worker.memory_bytes > 0;
    sum += worker.memory_bytes;
    if (worker.memory_bytes > largest) largest = worker.memory_bytes, largest_name = worker.name;
  }
  if (limited) {
    for (uint32_t a = 0; a < costs.last_point(); ++a) {
      if (costs.MemoryBytes(a, a + 1) <= largest) continue;
      return absl::ResourceExhaustedError(absl::StrFormat(
          "units %d..%d cannot be parted and need %.2f GiB; the worker with the most, %s, has %.2f GiB. Add a worker "
          "with "
          "more memory, or make microbatches or the model smaller",
          costs.UnitAt(a), costs.UnitAt(a + 1) - 1, Gib(costs.MemoryBytes(a, a + 1)), largest_name, Gib(largest)));
    }
    const uint64_t needed = costs.MemoryBytes(0, costs.last_point());
    if (needed * std::max(1u, clusters) > sum) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d cluster%s of this model need %.2f GiB and more, all %d workers have %.2f GiB. Add workers, or "
          "make microbatches or the model smaller",
          std::max(1u, clusters), clusters > 1 ? "s" : "", Gib(needed * std::max(1u, clusters)), num_workers,
          Gib(sum)));
    }
  }
  for (uint32_t i = 0; i < num_workers; ++i) {
    uint32_t reached = 0;
    for (uint32_t j = 0; j < num_workers; ++j)
      reached += i != j && std::isfinite(costs.Edge(i, j).link_seconds) ? 1 : 0;
    if (num_workers > 1 && reached == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "worker ", fleet.workers[i].name,
          " reaches no other worker, and the others cannot hold the model alone: open a port (listens), or a link"));
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no way was found to put ", clusters > 0 ? absl::StrCat(clusters, " clusters of ") : std::string(),
                   "the model on these workers: each stage must fit its worker and reach its neighbours"));
}

}  // namespace stagecoach
