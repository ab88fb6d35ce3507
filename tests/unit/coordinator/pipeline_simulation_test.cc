// The simulator against closed forms, and the pipeline that it makes of a planned cluster.
#include "coordinator/domain/simulation/pipeline_simulation.h"

#include <algorithm>
#include <numeric>

#include "common/schedule_rules.h"
#include "coordinator/domain/simulation/cluster_case.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

PipelineCase Uniform(uint32_t stages, double forward, double backward, double delay, uint32_t window, uint32_t m,
                     uint32_t j) {
  PipelineCase pipeline;
  for (uint32_t i = 0; i < stages; ++i) pipeline.stages.push_back({forward, backward, 0, window, 0, 0});
  for (uint32_t i = 0; i + 1 < stages; ++i) pipeline.links.push_back({delay, 0, 0, 0});
  pipeline.microbatches_per_step = m;
  pipeline.j = j;
  pipeline.steps = 10;
  return pipeline;
}

TEST(PipelineSimulationTest, SingleStage_TakesItsTimesAndUpdates) {
  PipelineCase pipeline = Uniform(1, 1, 2, 0, 1, 4, 0);
  pipeline.stages[0].update_seconds = 0.5;
  EXPECT_NEAR(SimulatePipeline(pipeline).microbatches_per_second, 4 / (4 * 3 + 0.5), 1e-12);
  pipeline.warmup_steps = 0;
  EXPECT_NEAR(SimulatePipeline(pipeline).seconds, 10 * 12 + 9 * 0.5, 1e-9);  // the last update is not waited for
}

TEST(PipelineSimulationTest, UniformPipelineWithoutLinks_RunsAtTheRateOfAStage) {
  const uint32_t stages = 6;
  PipelineCase pipeline = Uniform(stages, 1, 2, 0, 0, 24, 0);
  for (uint32_t i = 0; i < stages; ++i) pipeline.stages[i].window = WindowOf(3.0 * (stages - i), 3, i, stages);
  pipeline.j = pipeline.stages[0].window;
  const PipelineOutcome outcome = SimulatePipeline(pipeline);
  EXPECT_NEAR(outcome.microbatches_per_second, 1.0 / 3, 1e-3);
  for (const StageUse& use : outcome.stages) EXPECT_NEAR(use.compute, 1, 1e-3);
}

TEST(PipelineSimulationTest, UpdatesOnTheComputeLane_LengthenTheCycle) {
  PipelineCase pipeline = Uniform(3, 1, 2, 0, 6, 16, 8);
  for (SimulatedStage& stage : pipeline.stages) stage.update_seconds = 4;
  EXPECT_NEAR(SimulatePipeline(pipeline).microbatches_per_second, 1 / (3 + 4.0 / 16), 1e-3);
}

TEST(PipelineSimulationTest, WindowOverALongLink_CapsTheRateByLittlesLaw) {
  for (const uint32_t window : {1u, 2u, 5u, 9u}) {
    const PipelineCase pipeline = Uniform(2, 0.01, 0.01, 0.5, window, 64, 64);
    const double loop = 2 * 0.02 + 2 * 0.5;
    const PipelineOutcome outcome = SimulatePipeline(pipeline);
    EXPECT_NEAR(outcome.microbatches_per_second * loop / window, 1, 0.02) << window;
    EXPECT_EQ(outcome.stages[0].most_in_flight, window);
    EXPECT_GT(outcome.stages[0].waiting[static_cast<size_t>(SimulatedWait::kCredit)], 0.5);
  }
}

TEST(PipelineSimulationTest, UplinkOfTheMiddle_CarriesBothDirections) {
  PipelineCase pipeline = Uniform(3, 0.001, 0.001, 0.01, 20, 40, 40);
  pipeline.frame_bytes = 1e5;
  pipeline.stages[1].up_bytes_per_second = 1e6;
  const PipelineOutcome outcome = SimulatePipeline(pipeline);
  EXPECT_NEAR(outcome.microbatches_per_second, 1e6 / (2 * 1e5), 0.02);
  EXPECT_NEAR(outcome.stages[1].up, 1, 0.01);
  // The downlink of a worker likewise; one link carries one frame in each direction.
  std::swap(pipeline.stages[1].up_bytes_per_second, pipeline.stages[1].down_bytes_per_second);
  EXPECT_NEAR(SimulatePipeline(pipeline).microbatches_per_second, 5, 0.02);
  pipeline.stages[1].down_bytes_per_second = 0;
  pipeline.links[1].backward_bytes_per_second = 1e6;
  EXPECT_NEAR(SimulatePipeline(pipeline).microbatches_per_second, 10, 0.04);
}

TEST(PipelineSimulationTest, FrameOverSeveralLimits_TakesAsLongAsTheSlowest) {
  PipelineCase pipeline = Uniform(2, 0.1, 0.2, 0.05, 1, 8, 8);
  pipeline.frame_bytes = 1000;
  pipeline.stages[0].up_bytes_per_second = 4000;
  pipeline.links[0].forward_bytes_per_second = 2000;
  pipeline.stages[1].down_bytes_per_second = 8000;
  // One in flight: forward, 0.5 s over the link, both passes below, back at once, backward; delays.
  const double loop = 0.1 + 0.5 + 0.05 + 0.3 + 0.05 + 0.2;
  EXPECT_NEAR(SimulatePipeline(pipeline).microbatches_per_second, 1 / loop, 0.01);
}

TEST(PipelineSimulationTest, SynchronousSteps_AreNotSlowerThanTheFormula) {
  PipelineCase pipeline = Uniform(4, 1, 2, 0.5, 10, 16, 0);
  for (SimulatedStage& stage : pipeline.stages) stage.update_seconds = 0.5;
  const double loop = 4 * 3 + 3 * 2 * 0.5;
  const double formula = 16 / (15 * 3 + loop + 0.5);
  const double rate = SimulatePipeline(pipeline).microbatches_per_second;
  EXPECT_GE(rate, formula * 0.97);
  EXPECT_LE(rate, formula * 1.16);
}

TEST(PipelineSimulationTest, TooSmallJ_WaitsForVersions) {
  PipelineCase pipeline = Uniform(4, 1, 2, 0.5, 10, 10, 10);
  const double full = SimulatePipeline(pipeline).microbatches_per_second;
  pipeline.j = 2;
  const PipelineOutcome late = SimulatePipeline(pipeline);
  EXPECT_LT(late.microbatches_per_second, 0.95 * full);
  EXPECT_GT(late.stages[0].waiting[static_cast<size_t>(SimulatedWait::kVersion)], 0.05);
}

TEST(PipelineSimulationTest, Shares_SumToOneAndSeedsRepeat) {
  PipelineCase pipeline = Uniform(5, 0.02, 0.04, 0.05, 8, 16, 12);
  pipeline.frame_bytes = 1e4;
  for (SimulatedLink& link : pipeline.links) {
    link.jitter_seconds = 0.02;
    link.forward_bytes_per_second = 1e6;
  }
  const PipelineOutcome one = SimulatePipeline(pipeline), again = SimulatePipeline(pipeline);
  EXPECT_EQ(one.microbatches_per_second, again.microbatches_per_second);
  for (const StageUse& use : one.stages) {
    EXPECT_NEAR(use.compute + std::accumulate(use.waiting.begin(), use.waiting.end(), 0.0), 1, 1e-9);
    EXPECT_LE(use.most_in_flight, 8u);
  }
  pipeline.seed = 2;
  EXPECT_NE(SimulatePipeline(pipeline).seconds, one.seconds);
}

PlanModel TwoUnits() {
  PlanModel model;
  model.kinds = {"embedding", "block", "tail block", "head"};
  model.units = {{0, 10, 0, 8}, {1, 1000, 0, 8}, {1, 1000, 0, 8}, {3, 10, 0, 8}};
  model.cut_allowed = {false, false, true, true};
  model.frame_bytes = 1e5;
  model.tokens_per_microbatch = 100;
  model.microbatches = 10;
  model.steps_per_round = 2;
  model.averaging_bytes = 1;
  return model;
}

TEST(ClusterCaseTest, Pipeline_HasTheTimesLinksAndWindowsOfThePlan) {
  const PlanModel model = TwoUnits();
  Fleet fleet;
  const std::vector<KindSeconds> kinds = {{0.1, 0.1, 0}, {1, 2, 0.5}, {0, 0, 0}, {0.2, 0.2, 0.1}};
  fleet.workers = {{"a", "a", "x", kinds, 0, 1e6, 2e6, 0, true}, {"b", "b", "y", kinds, 0, 0, 0, 0, true}};
  fleet.regions[{"x", "y"}] = {0.08, 5e5, true};
  fleet.regions[{"y", "x"}] = {0.06, 0, true};
  PlannedCluster cluster;
  cluster.stages = {{0, 0, 2, 0, 0, 0, 0}, {1, 2, 4, 0, 0, 0, 0}};
  cluster.microbatch_seconds = 4;
  cluster.window = 2;
  cluster.j = 7;
  PipelineCase pipeline = CaseOfCluster(model, fleet, cluster, 2);
  ASSERT_EQ(pipeline.stages.size(), 2u);
  EXPECT_EQ(pipeline.j, 7u);
  EXPECT_EQ(pipeline.microbatches_per_step, 10u);
  EXPECT_DOUBLE_EQ(pipeline.stages[0].forward_seconds, 1.1);
  EXPECT_DOUBLE_EQ(pipeline.stages[0].backward_seconds, 2.1);
  EXPECT_DOUBLE_EQ(pipeline.stages[1].update_seconds, 0.6);
  // Averaging of two clusters: 2 (C-1)/C S w bytes every H M T seconds.
  EXPECT_DOUBLE_EQ(pipeline.stages[0].up_bytes_per_second, 1e6 - 1010.0 / (2 * 10 * 4));
  EXPECT_EQ(pipeline.stages[1].up_bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(pipeline.links[0].delay_seconds, 0.04);
  EXPECT_EQ(pipeline.links[0].forward_bytes_per_second, 5e5);
  EXPECT_EQ(pipeline.links[0].backward_bytes_per_second, 0);
  EXPECT_EQ(pipeline.stages[0].window, 2u);  // at most that of the plan
  EXPECT_EQ(pipeline.stages[1].window, 2u);  // ceil(3.4 / 4) + 1
  fleet.links[{0, 1}] = {0.5, 1e4, true};
  pipeline = CaseOfCluster(model, fleet, cluster, 1);
  EXPECT_DOUBLE_EQ(pipeline.links[0].delay_seconds, 0.25);
  EXPECT_EQ(pipeline.links[0].forward_bytes_per_second, 1e4);
  EXPECT_DOUBLE_EQ(pipeline.stages[0].up_bytes_per_second, 1e6);  // one cluster does not average
}

}  // namespace
}  // namespace stagecoach
