#include "coordinator/domain/planning/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/rng_draws.h"
#include "coordinator/domain/planning/cluster_counts.h"
#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/dual_bound.h"
#include "gtest/gtest.h"
#include "tests/support/fleet_families.h"

namespace stagecoach {
namespace {

using testing::AllFleetFamilies;
using testing::FamilyFleet;
using testing::FamilyName;
using testing::FleetFamily;
using testing::SyntheticModel;

// A model small enough to try everything: five units, memory that forces two stages and more.
PlanModel SmallModel() {
  PlanModel model = SyntheticModel();
  model.units.resize(5);
  for (PlanUnit& unit : model.units) unit.parameters *= 4;
  model.cut_allowed.assign(5, true);
  return model;
}

// Every order of every subset, every cut: the best goodput of a cluster by set of members.
std::vector<double> BestBySet(const CostModel& costs) {
  const uint32_t n = costs.num_workers(), last = costs.last_point();
  std::vector<double> best(size_t{1} << n, 0);
  std::vector<uint32_t> order;
  const auto cut = [&](auto&& self, ClusterDraft* draft) -> void {
    const size_t stage = draft->points.size() - 1;
    if (stage == draft->workers.size()) {
      if (draft->points.back() != last) return;
      uint32_t set = 0;
      for (const uint32_t w : draft->workers) set |= 1u << w;
      best[set] = std::max(best[set], costs.GoodputOf(*draft));
      return;
    }
    for (uint32_t point = draft->points.back() + 1; point <= last; ++point) {
      draft->points.push_back(point);
      self(self, draft);
      draft->points.pop_back();
    }
  };
  const auto choose = [&](auto&& self, uint32_t used) -> void {
    if (!order.empty()) {
      ClusterDraft draft{order, {0}};
      cut(cut, &draft);
    }
    for (uint32_t w = 0; w < n && order.size() < last; ++w) {
      if (used >> w & 1) continue;
      order.push_back(w);
      self(self, used | 1u << w);
      order.pop_back();
    }
  };
  choose(choose, 0);
  return best;
}

// Most goodput of exactly c clusters.
double BestDivision(const std::vector<double>& by_set, uint32_t set, uint32_t c) {
  if (c == 0) return 0;
  if (set == 0) return -1e300;
  const uint32_t low = set & (~set + 1), others = set ^ low;
  double best = BestDivision(by_set, others, c);
  for (uint32_t more = others;; more = (more - 1) & others) {
    if (by_set[more | low] > 0) best = std::max(best, by_set[more | low] + BestDivision(by_set, others ^ more, c - 1));
    if (more == 0) break;
  }
  return best;
}

double BruteForce(const PlanModel& model, const Fleet& fleet, const PlannerOptions& options) {
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  double best = 0;
  for (uint32_t window = LargestWindow(model); window > 0; window /= 2) {
    for (uint32_t c = 1; c <= fleet.workers.size(); ++c) {
      const CostModel costs(model, fleet, links, {window, static_cast<double>(c), options.stall_seconds});
      best = std::max(best, BestDivision(BestBySet(costs), (1u << fleet.workers.size()) - 1, c));
    }
  }
  return best;
}

TEST(PlannerTest, FewWorkers_PlanIsTheBestOfAllThatThereAre) {
  PlannerOptions options;
  uint32_t plans = 0;
  for (const FleetFamily family : AllFleetFamilies()) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(std::string(FamilyName(family)) + " seed " + std::to_string(seed));
      const PlanModel model = SmallModel();
      const Fleet fleet = FamilyFleet(family, 5, seed);
      const double best = BruteForce(model, fleet, options);
      const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, options);
      ASSERT_EQ(plan.ok(), best > 0) << plan.status();
      if (!plan.ok()) continue;
      ++plans;
      EXPECT_NEAR(plan->goodput / best, 1, 1e-6);
      EXPECT_TRUE(plan->exact);
      EXPECT_EQ(plan->bound, plan->goodput);
    }
  }
  EXPECT_GT(plans, 10u);
}

TEST(PlannerTest, LatencyCapsTheRate_PlanIsStillTheBest) {
  PlannerOptions options;
  PlanModel model = SmallModel();
  model.microbatches = 1;  // four in flight at most
  for (const bool synchronous : {false, true}) {
    model.synchronous = synchronous;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(seed);
      Fleet fleet = FamilyFleet(FleetFamily::kTwoCampuses, 5, seed);
      for (auto& [pair, link] : fleet.regions) link.rtt_seconds *= 20;
      const double best = BruteForce(model, fleet, options);
      const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, options);
      ASSERT_EQ(plan.ok(), best > 0) << plan.status();
      // J = 0: bottlenecks are tried in steps of 8 %.
      if (plan.ok()) {
        EXPECT_NEAR(plan->goodput / best, 1, synchronous ? 0.02 : 1e-6);
      }
    }
  }
}

// A hundred fleets of five families, five to eight workers, in two seeds of each twelve: the plan is never above the
// independent bound, is proven best, and does not depend on the order of registration.
TEST(PlannerTest, HundredFleets_ProvenBestInAnyOrder) {
  PlannerOptions options;
  options.explain = false;
  const PlanModel model = SyntheticModel();
  uint32_t plans = 0;
  for (const FleetFamily family : {FleetFamily::kMixed, FleetFamily::kTwoCampuses, FleetFamily::kDtfmCase4,
                                   FleetFamily::kHomeUplinks, FleetFamily::kHalfBehindNat}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(std::string(FamilyName(family)) + " seed " + std::to_string(seed));
      const uint32_t size = seed % 10 == 0 ? 12 : 5 + static_cast<uint32_t>(seed % 4);
      const Fleet fleet = FamilyFleet(family, size, seed);
      const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, options);
      if (!plan.ok()) continue;
      ++plans;
      EXPECT_TRUE(plan->exact) << plan->goodput / plan->bound;
      const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
      EXPECT_LE(plan->goodput, GoodputBound(model, fleet, links, options.stall_seconds, 0));
      std::vector<uint32_t> order(size);
      std::iota(order.begin(), order.end(), 0);
      RngDraws(seed, RngPurpose::kTest).Shuffle(&order);
      Fleet shuffled;
      shuffled.regions = fleet.regions;
      for (const uint32_t worker : order) shuffled.workers.push_back(fleet.workers[worker]);
      const absl::StatusOr<FleetPlan> again = PlanFleet(model, shuffled, options);
      ASSERT_TRUE(again.ok()) << again.status();
      ASSERT_EQ(again->clusters.size(), plan->clusters.size());
      std::vector<std::string> names, names_again;
      for (const auto& c : plan->clusters) {
        std::string& name = names.emplace_back();
        for (const auto& s : c.stages) name += fleet.workers[s.worker].name + std::to_string(s.end_unit) + " ";
      }
      for (const auto& c : again->clusters) {
        std::string& name = names_again.emplace_back();
        for (const auto& s : c.stages) name += shuffled.workers[s.worker].name + std::to_string(s.end_unit) + " ";
      }
      std::sort(names.begin(), names.end());
      std::sort(names_again.begin(), names_again.end());
      EXPECT_EQ(names, names_again);
    }
  }
  EXPECT_GT(plans, 70u);
}

TEST(PlannerTest, TwoCampuses_NoPipelineCrosses) {
  PlanModel model = SyntheticModel();
  for (PlanUnit& unit : model.units) unit.parameters /= 4;
  const Fleet fleet = FamilyFleet(FleetFamily::kTwoCampuses, 8, 3);
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const PlannedCluster& cluster : plan->clusters) {
    for (const PlannedStage& stage : cluster.stages) {
      EXPECT_EQ(fleet.workers[stage.worker].region, fleet.workers[cluster.stages[0].worker].region);
    }
  }
}

TEST(PlannerTest, LargeFleet_CloseToItsBoundAndNeverAbove) {
  PlannerOptions options;
  for (const uint32_t size : {30u, 100u, 1000u}) {
    SCOPED_TRACE(size);
    const absl::StatusOr<FleetPlan> plan =
        PlanFleet(SyntheticModel(), FamilyFleet(FleetFamily::kMixed, size, 5), options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->goodput, plan->bound);
    EXPECT_GE(plan->goodput, plan->bound * (size < 100    ? 0.5
                                            : size < 1000 ? 0.75
                                                          : 0.86))
        << plan->goodput / plan->bound;
    std::vector<uint32_t> seen(size, 0);
    for (const PlannedCluster& cluster : plan->clusters) {
      for (const PlannedStage& stage : cluster.stages) ++seen[stage.worker];
    }
    for (const uint32_t worker : plan->unused) ++seen[worker];
    EXPECT_EQ(seen, std::vector<uint32_t>(size, 1));
  }
}

TEST(PlannerTest, LargeFleetInAnotherOrder_SameGoodput) {
  const Fleet fleet = FamilyFleet(FleetFamily::kTwoCampuses, 80, 3);
  Fleet shuffled = fleet;
  RngDraws(7, RngPurpose::kTest).Shuffle(&shuffled.workers);
  const absl::StatusOr<FleetPlan> plan = PlanFleet(SyntheticModel(), fleet, {});
  const absl::StatusOr<FleetPlan> again = PlanFleet(SyntheticModel(), shuffled, {});
  ASSERT_TRUE(plan.ok() && again.ok());
  ASSERT_EQ(plan->clusters.size(), again->clusters.size());
  EXPECT_EQ(plan->unused.size(), again->unused.size());
  EXPECT_NEAR(plan->goodput / again->goodput, 1, 1e-12);  // summed in another order
}

TEST(PlannerTest, DeepClustersOfManySmallWorkers_AreFound) {
  PlanModel model = SyntheticModel();
  Fleet fleet = FamilyFleet(FleetFamily::kLan, 60, 1);
  // Two units a worker at most, with a single microbatch in flight; else one: 13 to 26 stages.
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  const CostModel costs(model, fleet, links, {1, 1, 0});
  for (FleetWorker& worker : fleet.workers) worker.memory_bytes = costs.MemoryBytes(0, 2) + (1 << 20);
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_FALSE(plan->clusters.empty());
  for (const PlannedCluster& cluster : plan->clusters) EXPECT_GE(cluster.stages.size(), 13u);
}

// Four workers hold the model alone and have no uplink to speak of; thirteen small ones hold it together, which is
// deeper than a chunk. Whichever are found first, the others form clusters too.
TEST(PlannerTest, WhoIsLeftByTheFirstClusters_FormsMore) {
  PlanModel model = SyntheticModel();
  model.steps_per_round = std::numeric_limits<double>::infinity();
  model.memory.window = LargestWindow(model);  // so that no smaller window lets a worker hold more
  Fleet fleet = FamilyFleet(FleetFamily::kLan, 17, 1);
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  const CostModel costs(model, fleet, links, {LargestWindow(model), 1, 0});
  for (size_t i = 0; i < fleet.workers.size(); ++i) {
    FleetWorker& worker = fleet.workers[i];
    worker.kinds.assign(3, testing::kUnitSeconds);
    worker.memory_bytes = costs.MemoryBytes(0, 2) + (1 << 20);
    if (i % 4 != 1) continue;
    worker.memory_bytes = uint64_t{16} << 30;
    worker.up_bytes_per_second = 1e5;
  }
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->clusters.size(), 5u);
  EXPECT_TRUE(plan->unused.empty());
  EXPECT_GT(plan->goodput, 0.99 * plan->bound);
}

TEST(PlannerTest, NumberOfClustersAskedFor_IsThatOfThePlan) {
  for (const uint32_t size : {8u, 24u}) {
    for (const uint32_t clusters : {1u, 2u, 3u}) {
      PlannerOptions options;
      options.clusters = clusters;
      PlanModel model = SyntheticModel();
      for (PlanUnit& unit : model.units) unit.parameters /= 8;
      const absl::StatusOr<FleetPlan> plan = PlanFleet(model, FamilyFleet(FleetFamily::kMixed, size, 2), options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->clusters.size(), clusters);
      EXPECT_LE(plan->goodput, plan->bound);
    }
  }
}

TEST(PlannerTest, UnreliableMember_GetsTheStandby) {
  PlanModel model = SyntheticModel();
  for (PlanUnit& unit : model.units) unit.parameters /= 8;
  Fleet fleet = FamilyFleet(FleetFamily::kLan, 4, 1);
  fleet.workers[3].name = "z-slow";
  for (KindSeconds& kind : fleet.workers[3].kinds) kind.forward *= 1000, kind.backward *= 1000;
  fleet.workers[1].failures_per_hour = 0.5;
  PlannerOptions options;
  options.clusters = 1;
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->unused, std::vector<uint32_t>{3});
  ASSERT_EQ(plan->standbys.size(), 1u);
  EXPECT_EQ(plan->standbys[0].worker, 3u);
  EXPECT_EQ(plan->standbys[0].protects, 1u);
}

// Three clusters of a worker each: of all second workers and of all faster machines only the best is named.
TEST(PlannerTest, WhatWouldHelp_NamesTheBestOfEachKind) {
  PlanModel model = SyntheticModel();
  model.steps_per_round = std::numeric_limits<double>::infinity();
  Fleet fleet = FamilyFleet(FleetFamily::kLan, 3, 4);
  for (FleetWorker& worker : fleet.workers) worker.memory_bytes = 0;
  PlannerOptions options;
  options.clusters = 3;
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  uint32_t second = 0, faster = 0;
  for (const std::string& line : plan->explanation) {
    second += line.find("would help: a second worker like ") == 0 ? 1 : 0;
    faster += line.find(" computing 1.5 times as fast: +50 % of its cluster") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(second, 1u);
  EXPECT_EQ(faster, 1u);
}

TEST(PlannerTest, OtherClusterCounts_AreNoBetterThanTheBest) {
  PlanModel model = SyntheticModel();
  for (PlanUnit& unit : model.units) unit.parameters /= 8;
  const Fleet fleet = FamilyFleet(FleetFamily::kTwoCampuses, 8, 2);
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto chosen = static_cast<uint32_t>(plan->clusters.size());
  const std::vector<ClusterCount> counts = OtherClusterCounts(model, fleet, {}, chosen);
  ASSERT_FALSE(counts.empty());
  for (const ClusterCount& count : counts) {
    EXPECT_NE(count.clusters, chosen);
    EXPECT_LE(count.goodput, plan->goodput * (1 + 1e-6));
    EXPECT_EQ(count.goodput == 0, !count.why_not.empty());
  }
  EXPECT_TRUE(OtherClusterCounts(model, FamilyFleet(FleetFamily::kLan, kMostWorkersCompared + 1, 1), {}, 2).empty());
}

TEST(PlannerTest, NoPlan_SaysWhy) {
  const PlanModel model = SyntheticModel();
  const Fleet lan = FamilyFleet(FleetFamily::kLan, 4, 1);
  Fleet fleet = lan;
  for (FleetWorker& worker : fleet.workers) worker.memory_bytes = 1 << 20;
  EXPECT_EQ(PlanFleet(model, fleet, {}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(PlanFleet(model, fleet, {}).status().message().find("GiB"), std::string::npos);
  PlannerOptions many;
  many.clusters = 5;
  EXPECT_EQ(PlanFleet(model, lan, many).status().code(), absl::StatusCode::kFailedPrecondition);
  fleet = lan;
  fleet.workers[1].name = fleet.workers[0].name;
  EXPECT_EQ(PlanFleet(model, fleet, {}).status().code(), absl::StatusCode::kInvalidArgument);
  fleet = lan;
  fleet.workers[2].kinds[0].forward = std::nan("");
  EXPECT_EQ(PlanFleet(model, fleet, {}).status().code(), absl::StatusCode::kInvalidArgument);
  fleet = lan;
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  const CostModel costs(model, fleet, links, {LargestWindow(model), 1, 0});
  for (FleetWorker& worker : fleet.workers) {
    worker.memory_bytes = costs.MemoryBytes(0, costs.last_point()) / 2;
    worker.listens = false;
  }
  EXPECT_EQ(PlanFleet(model, fleet, {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace stagecoach
