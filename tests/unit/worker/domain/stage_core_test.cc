// What a stage refuses, and single decisions. Whole pipelines: tests/sim.
#include "worker/domain/stage_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stagecoach {
namespace {

StageCoreConfig Middle(uint32_t window = 2, uint32_t j = 0) {
  StageCoreConfig config;
  config.stage = 1;
  config.num_stages = 3;
  config.window = window;
  config.input_window = window;
  config.rule = VersionRule(2, {{0, j}});
  config.order = ItemOrder(2, 4, 0, 0);
  config.total_steps = config.end_step = 4;
  return config;
}

Item Microbatch(uint64_t n) { return {n, n, false, 0}; }

template <class T>
const T* Find(const StageEffects& effects) {
  for (const StageEffect& effect : *effects) {
    if (const T* found = std::get_if<T>(&effect)) return found;
  }
  return nullptr;
}

TEST(StageCore, InputOutOfOrder_IsRefusedWithBothNames) {
  StageCore core(Middle());
  ASSERT_TRUE(core.Start().ok());
  const StageEffects effects = core.OnInput(Microbatch(1));
  EXPECT_EQ(effects.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(effects.status().ToString().find("expected=microbatch 0"), std::string::npos) << effects.status();
}

TEST(StageCore, MoreInputsThanTheWindow_AreRefused) {
  StageCore core(Middle());
  ASSERT_TRUE(core.Start().ok());
  ASSERT_NE(Find<RunForward>(core.OnInput(Microbatch(0))), nullptr);  // computing: the next ones wait
  ASSERT_TRUE(core.OnInput(Microbatch(1)).ok());
  ASSERT_TRUE(core.OnInput(Microbatch(2)).ok());
  EXPECT_EQ(core.OnInput(Microbatch(3)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(StageCore, GradientOfWhatWasNotSent_IsRefused) {
  StageCore core(Middle());
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.OnGradient(Microbatch(0)).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StageCore, ScalarAndNormsBeforeTheirStep_AreRefused) {
  StageCore core(Middle());
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.OnScalar(0, 1, 1, false).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(core.OnNorms(0, {1.0}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(core.OnStop(9).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StageCore, FullWindow_WaitsForCredit) {
  StageCore core(Middle(1));
  ASSERT_TRUE(core.Start().ok());
  EXPECT_EQ(core.wait_reason(), WaitReason::kInput);
  ASSERT_TRUE(core.OnInput(Microbatch(0)).ok());
  EXPECT_EQ(core.wait_reason(), WaitReason::kNone);
  ASSERT_NE(Find<SendActivation>(core.OnComputeDone()), nullptr);
  ASSERT_TRUE(core.OnInput(Microbatch(1)).ok());
  EXPECT_EQ(core.wait_reason(), WaitReason::kCredit);
  EXPECT_NE(Find<RunBackward>(core.OnGradient(Microbatch(0))), nullptr);
}

TEST(StageCore, BlockedSendSide_HoldsForwardsBack) {
  StageCore core(Middle());
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.OnSendBlocked(true, false).ok());
  EXPECT_EQ(Find<RunForward>(core.OnInput(Microbatch(0))), nullptr);
  EXPECT_EQ(core.wait_reason(), WaitReason::kSend);
  EXPECT_NE(Find<RunForward>(core.OnSendBlocked(false, false)), nullptr);
}

TEST(StageCore, ForwardAndBackwardReady_Alternate) {
  StageCore core(Middle(4, 2));
  ASSERT_TRUE(core.Start().ok());
  ASSERT_TRUE(core.OnInput(Microbatch(0)).ok());
  ASSERT_TRUE(core.OnInput(Microbatch(1)).ok());
  ASSERT_TRUE(core.OnInput(Microbatch(2)).ok());
  ASSERT_NE(Find<RunForward>(core.OnComputeDone()), nullptr);  // 1: no gradient there yet
  ASSERT_TRUE(core.OnGradient(Microbatch(0)).ok());
  ASSERT_NE(Find<RunBackward>(core.OnComputeDone()), nullptr);  // last was forward
  ASSERT_NE(Find<RunForward>(core.OnComputeDone()), nullptr);   // last was backward
}

TEST(StageCore, StopRequestBeforeAnything_EndsAtOnceWithACheckpoint) {
  StageCoreConfig config;
  config.rule = VersionRule(2, {{0, 0}});
  config.order = ItemOrder(2, 4, 0, 0);
  config.total_steps = config.end_step = 4;
  StageCore core(config);
  const StageEffects stop = core.RequestStop();
  ASSERT_NE(Find<ReportStopPoint>(stop), nullptr);
  EXPECT_EQ(Find<ReportStopPoint>(stop)->end_step, 0u);
  ASSERT_NE(Find<RunCapture>(stop), nullptr);
  ASSERT_NE(Find<RunFinishCapture>(core.OnComputeDone()), nullptr);
  ASSERT_NE(Find<StageFinished>(core.OnComputeDone()), nullptr);
  EXPECT_TRUE(core.finished());
}

TEST(StageCore, Hold_InjectsNothingBehindTheStepUntilTheCommonEndIsKnown) {
  StageCoreConfig config;
  config.num_stages = 2;
  config.window = 8;
  config.rule = VersionRule(2, {{0, 2}});
  config.order = ItemOrder(2, 4, 0, 0);
  config.total_steps = config.end_step = 4;
  StageCore core(config);
  ASSERT_NE(Find<RunForward>(core.Start()), nullptr);
  const StageEffects hold = core.HoldForStop();  // microbatch 0 of step 0 is under way
  ASSERT_NE(Find<ReportStopPoint>(hold), nullptr);
  EXPECT_EQ(Find<ReportStopPoint>(hold)->end_step, 1u);
  EXPECT_EQ(Find<ReportStopPoint>(core.HoldForStop()), nullptr);  // once
  ASSERT_NE(Find<RunForward>(core.OnComputeDone()), nullptr);
  EXPECT_EQ(Find<RunForward>(core.OnComputeDone()), nullptr);  // the step is injected
  EXPECT_EQ(core.StopAfter(0).status().code(), absl::StatusCode::kFailedPrecondition);
  const StageEffects stop = core.StopAfter(2);
  ASSERT_NE(Find<SendStop>(stop), nullptr);
  EXPECT_EQ(Find<SendStop>(stop)->end_step, 2u);
  EXPECT_NE(Find<RunForward>(stop), nullptr);
  ASSERT_NE(Find<RunForward>(core.OnComputeDone()), nullptr);
  EXPECT_EQ(Find<RunForward>(core.OnComputeDone()), nullptr);  // the end
}

TEST(DecideClip, NormAboveTheLimit_IsScaledAndNotFinite_IsSkipped) {
  EXPECT_DOUBLE_EQ(DecideClip({3.0, 1.0}, ClipScope::kGlobal, 1.0).clip, 1.0 / (2.0 + 1e-6));
  EXPECT_DOUBLE_EQ(DecideClip({0.25}, ClipScope::kGlobal, 1.0).clip, 1.0);
  EXPECT_DOUBLE_EQ(DecideClip({100.0}, ClipScope::kNone, 1.0).clip, 1.0);
  EXPECT_TRUE(DecideClip({std::numeric_limits<double>::quiet_NaN()}, ClipScope::kNone, 1.0).skip);
  EXPECT_TRUE(DecideClip({1.0, std::numeric_limits<double>::infinity()}, ClipScope::kGlobal, 1.0).skip);
}

TEST(BufferRotation, RolesRotate_WithinTauPlusTwoBuffers) {
  BufferRotation rotation(3, 0, 0);  // tau = 1
  bool first = false;
  EXPECT_EQ(rotation.BufferOfVersion(0), 0u);
  const uint32_t g0 = rotation.AccumulatorOf(0, &first);
  EXPECT_TRUE(first);
  EXPECT_EQ(rotation.AccumulatorOf(0, &first), g0);
  EXPECT_FALSE(first);
  const uint32_t g1 = rotation.AccumulatorOf(1, &first);
  EXPECT_EQ(rotation.Promote(0), g0);
  rotation.ReleaseBelow(1);
  EXPECT_FALSE(rotation.HasVersion(0));
  EXPECT_EQ(rotation.AccumulatorOf(2, &first), 0u);
  EXPECT_EQ(rotation.Promote(1), g1);
}

TEST(BufferRotationDeathTest, NoFreeBuffer_IsFatal) {
  BufferRotation rotation(2, 0, 0);
  bool first = false;
  rotation.AccumulatorOf(0, &first);
  EXPECT_DEATH(rotation.AccumulatorOf(1, &first), "no buffer is free");
  EXPECT_DEATH(rotation.BufferOfVersion(7), "not alive");
  EXPECT_DEATH(rotation.Promote(3), "in order");
}

}  // namespace
}  // namespace stagecoach
