#include "coordinator/domain/planning/baselines/baseline_planner.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/domain/planning/baselines/dtfm_search.h"
#include "coordinator/domain/planning/baselines/plain_divisions.h"
#include "coordinator/domain/planning/baselines/ravnest_genetic.h"
#include "coordinator/domain/planning/chain_cuts.h"
#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {
namespace {

// A random plan is the first of so many that does any work.
constexpr uint32_t kRandomTries = 64;

constexpr std::pair<Baseline, const char*> kNames[] = {{Baseline::kEqual, "equal"},
                                                       {Baseline::kRandom, "random"},
                                                       {Baseline::kGreedyMemory, "greedy-memory"},
                                                       {Baseline::kRavnestGa, "ravnest-ga"},
                                                       {Baseline::kRavnestEqual, "ravnest-equal"},
                                                       {Baseline::kDtfm, "dtfm"}};

// Depths of DT-FM's grid: that of `clusters`, or all that its exact path allows.
std::vector<Division> DtfmDivisions(const CostModel& costs, const PlannerOptions& options) {
  const uint32_t num = costs.num_workers();
  const uint32_t deepest = std::min({num, kMostDtfmStages, costs.last_point()});
  std::vector<Division> divisions;
  for (uint32_t stages = 1; stages <= deepest; ++stages) {
    if (options.clusters > 0 && stages != num / options.clusters) continue;
    divisions.push_back(DtfmDivision(costs, stages, options.seed));
    // More workers than clusters of this depth need stay without a stage.
    if (options.clusters > 0) divisions.back().resize(std::min<size_t>(divisions.back().size(), options.clusters));
  }
  return divisions;
}

std::vector<Division> Propose(Baseline baseline, const CostModel& costs, const PlannerOptions& options) {
  switch (baseline) {
    case Baseline::kEqual:
      return EqualDivisions(costs, options.clusters);
    case Baseline::kRandom:
      return RandomDivisions(costs, options.clusters, options.seed, kRandomTries);
    case Baseline::kGreedyMemory:
      return {GreedyMemoryDivision(costs, options.clusters)};
    case Baseline::kRavnestGa:
      return {RavnestDivision(costs, RavnestCuts::kByMemory, options.clusters, options.seed)};
    case Baseline::kRavnestEqual:
      return {RavnestDivision(costs, RavnestCuts::kEqual, options.clusters, options.seed)};
    case Baseline::kDtfm:
      return DtfmDivisions(costs, options);
  }
  return {};
}

// Clusters that work.
Division Working(const CostModel& costs, const Division& division, BaselineCuts cuts) {
  Division working;
  for (const ClusterDraft& draft : division) {
    std::optional<ClusterDraft> cut = draft;
    if (cuts == BaselineCuts::kOurs) cut = CutChain(costs, draft.workers, /*may_skip=*/false);
    if (cut && costs.GoodputOf(*cut) > 0) working.push_back(*std::move(cut));
  }
  return working;
}

absl::Status Check(Baseline baseline, const CostModel& costs, const PlannerOptions& options) {
  const uint32_t num = costs.num_workers();
  if (num == 0) return absl::InvalidArgumentError("a fleet without workers");
  if (options.clusters > num) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.clusters, " clusters need as many workers, there are ", num));
  }
  if (baseline != Baseline::kDtfm) return absl::OkStatus();
  if (num > kMostDtfmWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtfm plans at most ", kMostDtfmWorkers, " workers, there are ", num));
  }
  const uint32_t deepest = std::min(kMostDtfmStages, costs.last_point());
  if (options.clusters > 0 && num / options.clusters > deepest) {
    return absl::InvalidArgumentError(absl::StrCat("dtfm plans at most ", deepest, " stages; ", options.clusters,
                                                   " clusters of ", num, " workers have ", num / options.clusters));
  }
  return absl::OkStatus();
}

}  // namespace

const char* BaselineName(Baseline baseline) {
  for (const auto& [value, name] : kNames) {
    if (value == baseline) return name;
  }
  return "";
}

std::optional<Baseline> BaselineNamed(absl::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (name == known) return value;
  }
  return std::nullopt;
}

absl::StatusOr<FleetPlan> PlanBaseline(Baseline baseline, const PlanModel& model, const Fleet& fleet,
                                       const PlannerOptions& options, BaselineCuts cuts) {
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  const uint32_t largest = LargestWindow(model);
  const auto costs_with = [&](uint32_t window) {
    return CostModel(model, fleet, links, {window, 1, options.stall_seconds});
  };
  // Proposals are made for weights at most one step old: with deeper windows a model needs more memory.
  const CostModel proposing = costs_with(std::min(model.microbatches, largest));
  if (absl::Status status = Check(baseline, proposing, options); !status.ok()) return status;
  const std::vector<Division> proposed = Propose(baseline, proposing, options);
  FleetPlan best;
  size_t best_proposed = 0;
  std::optional<size_t> random;  // which random division is taken: the first that works, not the best
  for (uint32_t window = 1;; window = std::min(2 * window, largest)) {
    const CostModel costs = costs_with(window);
    // How much fits depends on the window.
    const std::vector<Division> divisions =
        baseline == Baseline::kGreedyMemory ? Propose(baseline, costs, options) : proposed;
    for (size_t i = 0; i < divisions.size(); ++i) {
      if (random && *random != i) continue;
      const Division working = Working(costs, divisions[i], cuts);
      if (working.empty()) continue;
      if (baseline == Baseline::kRandom) random = i;
      FleetPlan plan = EvaluatePlan(costs, working);
      if (plan.goodput > best.goodput) best = std::move(plan), best_proposed = divisions[i].size();
      if (random) break;
    }
    if (window == largest) break;
  }
  if (best.clusters.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        BaselineName(baseline), " finds no cluster that holds the model and whose members reach each other"));
  }
  best.explanation.push_back(absl::StrCat("baseline ", BaselineName(baseline), ": ", best.clusters.size(), " of its ",
                                          best_proposed, " clusters work"));
  return best;
}

}  // namespace stagecoach
