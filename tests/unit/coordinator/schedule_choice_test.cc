#include "coordinator/domain/schedule_choice.h"

#include "absl/strings/str_cat.h"
#include "coordinator/domain/pipeline_prediction.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// Four workers on hosts of their own: f 40 ms, b 60 ms, update 10 ms; 50 ms RTT, frames of 100 kB at 10 MB/s.
PipelineCosts FourStages() {
  PipelineCosts costs;
  for (int i = 0; i < 4; ++i) {
    costs.stages.push_back({absl::StrCat("w", i), absl::StrCat("h", i), 2, 0.04, 0.06, 0.01});
  }
  costs.links.assign(3, LinkCost{0.05, 1e7, 1e7});
  costs.frame_bytes = 1e5;
  return costs;
}

TEST(PipelinePredictionTest, Formulas_AreThoseOfThePage) {
  const PipelineSpeed speed = PredictSpeed(FourStages());
  EXPECT_NEAR(speed.microbatch_seconds, 0.1, 1e-12);
  EXPECT_NEAR(speed.loop_seconds, 4 * 0.1 + 3 * (0.05 + 0.01 + 0.01), 1e-12);
  EXPECT_NEAR(speed.loop_from_stage[2], 2 * 0.1 + 0.07, 1e-12);
  EXPECT_NEAR(speed.update_seconds, 0.01, 1e-12);
  // N_i = ceil(L_i / t*) + ceil((P - i) / 2): 6.1 -> 7 + 2; 4.4 -> 5 + 2; 2.7 -> 3 + 1; 1 + 1.
  EXPECT_EQ(speed.windows, (std::vector<uint32_t>{9, 7, 4, 2}));
  EXPECT_NE(speed.bottleneck.find("compute of w0"), std::string::npos);
}

TEST(PipelinePredictionTest, SlowLink_IsTheBottleneck) {
  PipelineCosts costs = FourStages();
  costs.links[1].backward_bytes_per_second = 5e5;  // 200 ms a frame
  const PipelineSpeed speed = PredictSpeed(costs);
  EXPECT_NEAR(speed.microbatch_seconds, 0.2, 1e-12);
  EXPECT_NE(speed.bottleneck.find("link w2 -> w1"), std::string::npos);
  EXPECT_NEAR(PredictComputeBound(costs).microbatch_seconds, 0.1, 1e-12);
  EXPECT_NEAR(PredictComputeBound(costs).loop_seconds, 0.4, 1e-12);
}

TEST(PipelinePredictionTest, WorkersOfOneHost_ShareItsCores) {
  PipelineCosts costs = FourStages();
  for (auto& stage : costs.stages) stage.host = "laptop";
  const PipelineSpeed speed = PredictSpeed(costs);
  EXPECT_NEAR(speed.microbatch_seconds, 4 * 0.1 / 2, 1e-12);  // two cores
  EXPECT_TRUE(speed.host_bound);
  EXPECT_NEAR(speed.update_seconds, 4 * 0.01 / 2, 1e-12);
  EXPECT_NE(speed.bottleneck.find("2 cores of host laptop"), std::string::npos);
  costs.threads = 2;
  EXPECT_NEAR(PredictSpeed(costs).microbatch_seconds, 0.4, 1e-12);
}

TEST(PipelinePredictionTest, CostlessStages_HaveBoundedWindows) {
  PipelineCosts costs = FourStages();
  for (auto& stage : costs.stages) stage.forward_seconds = stage.backward_seconds = stage.update_seconds = 0;
  costs.frame_bytes = 0;
  EXPECT_LE(PredictSpeed(costs).windows[0], 256u);
}

TEST(ScheduleChoiceTest, Fd2bw_ChoosesNOfSlack) {
  ScheduleWish wish;
  wish.steps = 100;
  wish.sync_warmup_steps = 10;
  const auto choice = ChooseSchedule(wish, PredictSpeed(FourStages()));
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->microbatches, 18u);  // 2N
  EXPECT_EQ(choice->j, 9u);              // N, the update is short
  ASSERT_EQ(choice->j_table.size(), 2u);
  EXPECT_EQ(choice->j_table[0].j, 0u);
  EXPECT_EQ(choice->j_table[1].from_step, 10u);
  EXPECT_EQ(choice->j_table[1].j, 9u);
  EXPECT_TRUE(choice->delayed);
  EXPECT_NEAR(choice->microbatches_per_second, 1 / (0.1 + 0.01 / 18), 1e-9);
  EXPECT_EQ(choice->explanation[1].substr(0, 26), "J 9 of M 18: phi 0.5, olde");
}

TEST(ScheduleChoiceTest, ManyMicrobatches_AllowTheSynchronousSchedule) {
  ScheduleWish wish;
  wish.microbatches = 200;
  const auto choice = ChooseSchedule(wish, PredictSpeed(FourStages()));
  EXPECT_EQ(choice->j, 0u);
  EXPECT_FALSE(choice->delayed);
  EXPECT_NEAR(choice->microbatches_per_second, 200 / (199 * 0.1 + 0.61 + 0.01), 1e-9);
}

TEST(ScheduleChoiceTest, TooFewMicrobatches_AreRefusedWithAdvice) {
  ScheduleWish wish;
  wish.microbatches = 2;  // J = 9 would be 5 steps
  const auto choice = ChooseSchedule(wish, PredictSpeed(FourStages()));
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(choice.status().message().find("use microbatches >= 3"), absl::string_view::npos) << choice.status();
  wish.j = 9;  // the user may force it
  EXPECT_EQ(ChooseSchedule(wish, PredictSpeed(FourStages()))->j, 9u);
  wish.j = 17;
  EXPECT_FALSE(ChooseSchedule(wish, PredictSpeed(FourStages())).ok());
}

TEST(ScheduleChoiceTest, Baselines_FixJAndWindows) {
  const PipelineSpeed speed = PredictSpeed(FourStages());
  ScheduleWish wish;
  wish.microbatches = 12;
  wish.sync_warmup_steps = 10;
  wish.steps = 100;
  wish.kind = ScheduleName::kSync;
  EXPECT_EQ(ChooseSchedule(wish, speed)->j, 0u);
  EXPECT_EQ(ChooseSchedule(wish, speed)->windows, speed.windows);
  wish.kind = ScheduleName::kSync1f1b;
  EXPECT_EQ(ChooseSchedule(wish, speed)->windows, (std::vector<uint32_t>{4, 3, 2, 1}));
  wish.kind = ScheduleName::kGpipe;
  EXPECT_EQ(ChooseSchedule(wish, speed)->windows, (std::vector<uint32_t>{12, 12, 12, 12}));
  wish.kind = ScheduleName::k2bw;
  EXPECT_EQ(ChooseSchedule(wish, speed)->j, 12u);
  EXPECT_EQ(ChooseSchedule(wish, speed)->j_table.size(), 1u);
  wish.kind = ScheduleName::kPipedream;
  const auto pipedream = ChooseSchedule(wish, speed);
  EXPECT_EQ(pipedream->microbatches, 1u);
  EXPECT_EQ(pipedream->updates_per_step, 12u);
  EXPECT_EQ(pipedream->stage_delays, (std::vector<uint32_t>{8, 6, 3, 1}));
  EXPECT_TRUE(pipedream->delayed);
}

TEST(ScheduleChoiceTest, SmallWindows_LimitTheRate) {
  const PipelineSpeed speed = PredictSpeed(FourStages());
  EXPECT_NEAR(MicrobatchesPerSecond(12, false, {4, 3, 2, 1}, speed), 1 / (0.61 / 4 + 0.01 / 12), 1e-9);
}

}  // namespace
}  // namespace stagecoach
