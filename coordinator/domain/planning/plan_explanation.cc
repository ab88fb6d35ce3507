#include "coordinator/domain/planning/plan_explanation.h"

#include <algorithm>
#include <cmath>
#include <map>
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

// A cluster alone: its members and what is between them.
struct Excerpt {
  Fleet fleet;
  std::vector<uint32_t> order;  // of the pipeline
};

Excerpt ExcerptOf(const Fleet& fleet, const ClusterDraft& draft) {
  Excerpt excerpt;
  excerpt.fleet.regions = fleet.regions;
  for (uint32_t i = 0; i < draft.workers.size(); ++i) {
    excerpt.fleet.workers.push_back(fleet.workers[draft.workers[i]]);
    excerpt.order.push_back(i);
    for (uint32_t j = 0; j < draft.workers.size(); ++j) {
      const auto link = fleet.links.find({draft.workers[i], draft.workers[j]});
      if (link != fleet.links.end()) excerpt.fleet.links[{i, j}] = link->second;
    }
  }
  return excerpt;
}

// Relative gain of a cluster, cut anew in its order, after a change.
double Gain(const CostModel& costs, const Excerpt& changed, double goodput) {
  const auto links = std::make_shared<const LinkCosts>(changed.fleet, costs.model().frame_bytes);
  const CostModel better(costs.model(), changed.fleet, links, costs.assumptions());
  const std::optional<ClusterDraft> draft = CutChain(better, changed.order, /*may_skip=*/true);
  return draft ? better.GoodputOf(*draft) / goodput - 1 : 0;
}

// Changes of one kind are alternatives: only the best of each is said.
enum class Help { kSecondWorker, kUplink, kDownlink, kCompute, kMemory, kLink };

struct Idea {
  Help kind;
  std::string what;
  Excerpt changed;
};

Excerpt WithTwin(const Excerpt& excerpt, uint32_t at) {
  Excerpt changed = excerpt;
  const auto twin = static_cast<uint32_t>(excerpt.fleet.workers.size());
  changed.fleet.workers.push_back(excerpt.fleet.workers[at]);
  changed.fleet.workers.back().name += "'";
  for (uint32_t i = 0; i < twin; ++i) {
    const auto link = excerpt.fleet.links.find({i, at}), back = excerpt.fleet.links.find({at, i});
    if (link != excerpt.fleet.links.end()) changed.fleet.links[{i, twin}] = link->second;
    if (back != excerpt.fleet.links.end()) changed.fleet.links[{twin, i}] = back->second;
  }
  changed.order.insert(changed.order.begin() + at + 1, twin);
  return changed;
}

// Both directions of the edge behind stage `at`, as a link of its own.
Excerpt WithFasterLink(const CostModel& costs, const Excerpt& excerpt, const ClusterDraft& draft, uint32_t at,
                       double bytes_per_second) {
  Excerpt changed = excerpt;
  for (const bool there : {true, false}) {
    const uint32_t from = there ? at : at + 1, to = there ? at + 1 : at;
    FleetLink link = costs.links().Directed(draft.workers[from], draft.workers[to]);
    if (link.bytes_per_second > 0) link.bytes_per_second = std::max(link.bytes_per_second, bytes_per_second);
    changed.fleet.links[{from, to}] = link;
  }
  return changed;
}

std::vector<Idea> IdeasFor(const CostModel& costs, const PlannedCluster& cluster) {
  const ClusterDraft draft = DraftOf(costs, cluster);
  const Excerpt own = ExcerptOf(costs.fleet(), draft);
  const auto at = static_cast<uint32_t>(
      std::find(draft.workers.begin(), draft.workers.end(), SlowestStage(cluster).worker) - draft.workers.begin());
  const FleetWorker& slow = own.fleet.workers[at];
  std::vector<Idea> ideas;
  ideas.push_back(
      {Help::kSecondWorker, absl::StrCat("a second worker like ", slow.name, " beside it"), WithTwin(own, at)});
  const auto change = [&](Help kind, const std::string& what) -> FleetWorker& {
    ideas.push_back({kind, what, own});
    return ideas.back().changed.fleet.workers[at];
  };
  const auto mbit = [](double bytes_per_second) { return bytes_per_second * kMuchFaster * 8 / 1e6; };
  if (const double rate = slow.up_bytes_per_second; rate > 0) {
    change(Help::kUplink, absl::StrFormat("uplink of %s at %.4g Mbit/s", slow.name, mbit(rate))).up_bytes_per_second =
        rate * kMuchFaster;
  }
  if (const double rate = slow.down_bytes_per_second; rate > 0) {
    change(Help::kDownlink, absl::StrFormat("downlink of %s at %.4g Mbit/s", slow.name, mbit(rate)))
        .down_bytes_per_second = rate * kMuchFaster;
  }
  FleetWorker& faster =
      change(Help::kCompute, absl::StrFormat("%s computing %.1f times as fast", slow.name, kMuchFaster));
  for (KindSeconds& kind : faster.kinds) {
    kind = {kind.forward / kMuchFaster, kind.backward / kMuchFaster, kind.update / kMuchFaster};
  }
  for (uint32_t i = 0; i < draft.workers.size(); ++i) {  // who is full keeps others from being relieved
    const FleetWorker& worker = own.fleet.workers[i];
    if (worker.memory_bytes == 0) continue;
    const auto memory = static_cast<uint64_t>(static_cast<double>(worker.memory_bytes) * kMuchFaster);
    ideas.push_back({Help::kMemory, absl::StrFormat("%s with %.3g GiB", worker.name, Gib(memory)), own});
    ideas.back().changed.fleet.workers[i].memory_bytes = memory;
  }
  uint32_t slowest = 0;
  for (uint32_t i = 0; i + 1 < draft.workers.size(); ++i) {
    const auto seconds = [&](uint32_t k) { return costs.Edge(draft.workers[k], draft.workers[k + 1]).link_seconds; };
    if (seconds(i) > seconds(slowest)) slowest = i;
  }
  if (draft.workers.size() > 1) {
    const double seconds = costs.Edge(draft.workers[slowest], draft.workers[slowest + 1]).link_seconds;
    if (seconds > 0) {
      const double rate = costs.model().frame_bytes / seconds;
      ideas.push_back({Help::kLink,
                       absl::StrFormat("the link between %s and %s at %.4g Mbit/s", own.fleet.workers[slowest].name,
                                       own.fleet.workers[slowest + 1].name, mbit(rate)),
                       WithFasterLink(costs, own, draft, slowest, rate * kMuchFaster)});
    }
  }
  return ideas;
}

std::vector<std::string> WhatWouldHelp(const CostModel& costs, const FleetPlan& plan) {
  std::vector<const PlannedCluster*> slowest;
  for (const PlannedCluster& cluster : plan.clusters) slowest.push_back(&cluster);
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const auto* a, const auto* b) { return a->microbatch_seconds > b->microbatch_seconds; });
  slowest.resize(std::min(slowest.size(), kMostClustersTried));
  std::map<Help, std::pair<double, std::string>> best;
  for (const PlannedCluster* cluster : slowest) {
    for (const Idea& idea : IdeasFor(costs, *cluster)) {
      const double gain = Gain(costs, idea.changed, cluster->goodput);
      auto& [most, what] = best[idea.kind];
      if (gain > most) most = gain, what = idea.what;
    }
  }
  std::vector<std::pair<double, std::string>> ranked;
  ranked.reserve(best.size());
  for (const auto& [kind, idea] : best) ranked.push_back(idea);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> lines;
  for (const auto& [gain, what] : ranked) {
    if (gain < kWorthSaying) break;
    lines.push_back(absl::StrFormat("would help: %s: %+.0f %% of its cluster", what, gain * 100));
  }
  return lines;
}

std::string WhyLeftOut(const CostModel& costs, uint32_t worker) {
  const FleetWorker& facts = costs.fleet().workers[worker];
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t a = 0; a < costs.last_point(); ++a) least = std::min(least, costs.MemoryBytes(a, a + 1));
  if (facts.memory_bytes > 0 && facts.memory_bytes < least) {
    return absl::StrFormat("the smallest part of the model needs %.3g GiB, it has %.3g", Gib(least),
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
          "units %d..%d cannot be parted and need %.3g GiB; the worker with the most, %s, has %.3g GiB. Add a worker "
          "with "
          "more memory, or make microbatches or the model smaller",
          costs.UnitAt(a), costs.UnitAt(a + 1) - 1, Gib(costs.MemoryBytes(a, a + 1)), largest_name, Gib(largest)));
    }
    const uint64_t needed = costs.MemoryBytes(0, costs.last_point());
    if (needed * std::max(1u, clusters) > sum) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d cluster%s of this model need %.3g GiB and more, all %d workers have %.3g GiB. Add workers, or "
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
