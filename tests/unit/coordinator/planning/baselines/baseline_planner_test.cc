#include "coordinator/domain/planning/baselines/baseline_planner.h"

#include <algorithm>
#include <set>
#include <string>

#include "coordinator/domain/planning/cost_model.h"
#include "gtest/gtest.h"
#include "tests/support/fleet_families.h"

namespace stagecoach {
namespace {

using testing::FamilyFleet;
using testing::FleetFamily;
using testing::SyntheticModel;

constexpr Baseline kAll[] = {Baseline::kEqual,     Baseline::kRandom,       Baseline::kGreedyMemory,
                             Baseline::kRavnestGa, Baseline::kRavnestEqual, Baseline::kDtfm};

// Every cluster covers the model once, nobody has two stages, everything fits, the figures are those of the cost model.
void ExpectSound(const PlanModel& model, const Fleet& fleet, const FleetPlan& plan) {
  std::set<uint32_t> seen(plan.unused.begin(), plan.unused.end());
  size_t placed = plan.unused.size();
  for (const PlannedCluster& cluster : plan.clusters) {
    uint32_t next = 0;
    for (const PlannedStage& stage : cluster.stages) {
      EXPECT_EQ(stage.first_unit, next);
      EXPECT_GT(stage.end_unit, next);
      next = stage.end_unit;
      EXPECT_LE(stage.memory_bytes, fleet.workers[stage.worker].memory_bytes);
      seen.insert(stage.worker);
      ++placed;
    }
    EXPECT_EQ(next, model.units.size());
  }
  EXPECT_EQ(placed, fleet.workers.size());
  EXPECT_EQ(seen.size(), fleet.workers.size());
  EXPECT_GT(plan.goodput, 0);
}

TEST(BaselinePlannerTest, EveryFamily_GivesSoundPlansOrAReason) {
  const PlanModel model = SyntheticModel();
  for (const FleetFamily family : testing::AllFleetFamilies()) {
    const Fleet fleet = FamilyFleet(family, 9, 1);
    for (const Baseline baseline : kAll) {
      for (const BaselineCuts cuts : {BaselineCuts::kItsOwn, BaselineCuts::kOurs}) {
        if (cuts == BaselineCuts::kOurs && baseline == Baseline::kDtfm) continue;  // a second search of a second each
        SCOPED_TRACE(std::string(testing::FamilyName(family)) + " " + BaselineName(baseline));
        const absl::StatusOr<FleetPlan> plan = PlanBaseline(baseline, model, fleet, {}, cuts);
        if (plan.ok()) {
          ExpectSound(model, fleet, *plan);
        } else {
          EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << plan.status();
        }
      }
    }
  }
}

TEST(BaselinePlannerTest, EqualSeeds_GiveEqualPlans) {
  const PlanModel model = SyntheticModel();
  const Fleet fleet = FamilyFleet(FleetFamily::kLan, 10, 2);
  for (const Baseline baseline : kAll) {
    SCOPED_TRACE(BaselineName(baseline));
    const absl::StatusOr<FleetPlan> a = PlanBaseline(baseline, model, fleet, {}),
                                    b = PlanBaseline(baseline, model, fleet, {});
    ASSERT_EQ(a.ok(), b.ok());
    if (!a.ok()) continue;
    EXPECT_EQ(a->goodput, b->goodput);
    EXPECT_EQ(a->unused, b->unused);
    ASSERT_EQ(a->clusters.size(), b->clusters.size());
    for (size_t c = 0; c < a->clusters.size(); ++c) {
      ASSERT_EQ(a->clusters[c].stages.size(), b->clusters[c].stages.size());
      for (size_t i = 0; i < a->clusters[c].stages.size(); ++i) {
        EXPECT_EQ(a->clusters[c].stages[i].worker, b->clusters[c].stages[i].worker);
        EXPECT_EQ(a->clusters[c].stages[i].end_unit, b->clusters[c].stages[i].end_unit);
      }
    }
  }
}

TEST(BaselinePlannerTest, Random_FollowsTheSeed) {
  const PlanModel model = SyntheticModel();
  const Fleet fleet = FamilyFleet(FleetFamily::kDtfmCase4, 16, 1);
  std::set<double> goodputs;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PlannerOptions options;
    options.seed = seed;
    const absl::StatusOr<FleetPlan> plan = PlanBaseline(Baseline::kRandom, model, fleet, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    goodputs.insert(plan->goodput);
  }
  EXPECT_GE(goodputs.size(), 8u);
}

TEST(BaselinePlannerTest, OurCuts_AreNeverWorse) {
  const PlanModel model = SyntheticModel();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Fleet fleet = FamilyFleet(FleetFamily::kMixed, 12, seed);
    PlannerOptions options;
    options.clusters = 1;  // with more, a cluster that fits only with our cuts adds to what is averaged
    for (const Baseline baseline : {Baseline::kEqual, Baseline::kRavnestGa}) {
      const absl::StatusOr<FleetPlan> own = PlanBaseline(baseline, model, fleet, options);
      const absl::StatusOr<FleetPlan> ours = PlanBaseline(baseline, model, fleet, options, BaselineCuts::kOurs);
      if (!own.ok()) continue;
      ASSERT_TRUE(ours.ok()) << ours.status();
      EXPECT_GE(ours->goodput, own->goodput * (1 - 1e-6)) << BaselineName(baseline) << " " << seed;
    }
  }
}

TEST(BaselinePlannerTest, AskedClusters_AreFormed) {
  const PlanModel model = SyntheticModel();
  const Fleet fleet = FamilyFleet(FleetFamily::kDtfmCase2, 12, 1);  // every GPU holds the model
  PlannerOptions options;
  options.clusters = 3;
  for (const Baseline baseline : {Baseline::kEqual, Baseline::kRandom, Baseline::kDtfm}) {
    const absl::StatusOr<FleetPlan> plan = PlanBaseline(baseline, model, fleet, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->clusters.size(), 3u) << BaselineName(baseline);
  }
  for (const Baseline baseline : {Baseline::kGreedyMemory, Baseline::kRavnestGa}) {
    const absl::StatusOr<FleetPlan> plan = PlanBaseline(baseline, model, fleet, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->clusters.size(), 3u) << BaselineName(baseline);
  }
}

TEST(BaselinePlannerTest, SingleWorker_IsPlannedByEach) {
  const PlanModel model = SyntheticModel();
  const Fleet fleet = FamilyFleet(FleetFamily::kDtfmCase2, 1, 1);
  for (const Baseline baseline : kAll) {
    const absl::StatusOr<FleetPlan> plan = PlanBaseline(baseline, model, fleet, {});
    ASSERT_TRUE(plan.ok()) << BaselineName(baseline) << plan.status();
    ExpectSound(model, fleet, *plan);
  }
}

TEST(BaselinePlannerTest, WhatCannotBe_IsRefused) {
  const PlanModel model = SyntheticModel();
  Fleet small = FamilyFleet(FleetFamily::kLan, 4, 1);
  for (FleetWorker& worker : small.workers) worker.memory_bytes = 1000;
  PlannerOptions five;
  five.clusters = 5;
  for (const Baseline baseline : kAll) {
    SCOPED_TRACE(BaselineName(baseline));
    EXPECT_EQ(PlanBaseline(baseline, model, small, {}).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(PlanBaseline(baseline, model, small, five).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(PlanBaseline(baseline, model, Fleet{}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
  PlannerOptions deep;
  deep.clusters = 1;
  EXPECT_EQ(PlanBaseline(Baseline::kDtfm, model, FamilyFleet(FleetFamily::kLan, 129, 1), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanBaseline(Baseline::kDtfm, model, FamilyFleet(FleetFamily::kLan, 9, 1), deep).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(BaselineNamesTest, Names_LeadBack) {
  for (const Baseline baseline : kAll) EXPECT_EQ(BaselineNamed(BaselineName(baseline)), baseline);
  EXPECT_EQ(BaselineNamed("optimal"), std::nullopt);
}

}  // namespace
}  // namespace stagecoach
