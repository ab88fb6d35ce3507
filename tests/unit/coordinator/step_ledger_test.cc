#include "coordinator/domain/step_ledger.h"

#include "coordinator/domain/checkpoint_assembly.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;

StepScalarFact Skip(bool skip) {
  StepScalarFact scalar;
  scalar.skip = skip;
  return scalar;
}

void Complete(StepLedger* ledger, uint64_t step, bool skip, MonoTime now) {
  ASSERT_TRUE(ledger->OnLoss(now, step, 1).ok());
  ASSERT_TRUE(ledger->OnScalar(now, step, Skip(skip)).ok());
}

TEST(StepLedgerTest, Steps_AreCompleteInOrderOnceBothEndsReported) {
  StepLedger ledger(0, {}, {});
  ledger.Start(seconds(10));
  ASSERT_TRUE(ledger.OnLoss(seconds(11), 0, 5.5).ok());
  ASSERT_TRUE(ledger.OnLoss(seconds(12), 1, 5.25).ok());
  ASSERT_TRUE(ledger.OnScalar(seconds(13), 1, Skip(false)).ok());
  EXPECT_EQ(ledger.steps_done(), 0u);
  ASSERT_TRUE(ledger.OnScalar(seconds(14), 0, Skip(true)).ok());
  EXPECT_EQ(ledger.steps_done(), 2u);
  EXPECT_EQ(ledger.LossesUpTo(2), (std::vector<double>{5.5, 5.25}));
  EXPECT_EQ(ledger.SkippedUpTo(2), std::vector<uint64_t>{0});
  EXPECT_EQ(ledger.completed()[0].seconds, 4);
}

TEST(StepLedgerTest, RepeatedOrFarStep_IsRefused) {
  StepLedger ledger(5, {1, 2, 3, 4, 5}, {3});
  EXPECT_FALSE(ledger.OnLoss(seconds(1), 4, 1).ok());
  EXPECT_FALSE(ledger.OnLoss(seconds(1), 5 + 1024, 1).ok());
  EXPECT_TRUE(ledger.OnLoss(seconds(1), 6, 1).ok());
  EXPECT_FALSE(ledger.OnLoss(seconds(1), 6, 1).ok());
  EXPECT_EQ(ledger.steps_done(), 5u);
  EXPECT_EQ(ledger.SkippedUpTo(3), std::vector<uint64_t>{});
  EXPECT_EQ(ledger.SkippedUpTo(4), std::vector<uint64_t>{3});
}

TEST(StepLedgerTest, Rate_LeavesOutTheFirstTwoSteps) {
  StepLedger ledger(0, {}, {});
  ledger.Start(seconds(0));
  Complete(&ledger, 0, false, seconds(10));
  Complete(&ledger, 1, false, seconds(20));
  EXPECT_EQ(ledger.StepsPerSecond(), 0);
  Complete(&ledger, 2, false, seconds(21));
  Complete(&ledger, 3, false, seconds(24));
  EXPECT_EQ(ledger.StepsPerSecond(), 0.5);
}

TEST(StepLedgerTest, FiveSkipsInARow_StopTheRun) {
  StepLedger ledger(0, {}, {});
  for (uint64_t step = 0; step < 4; ++step) Complete(&ledger, step, true, seconds(1));
  EXPECT_EQ(ledger.SkipVerdict(), "");
  Complete(&ledger, 4, true, seconds(1));
  EXPECT_NE(ledger.SkipVerdict().find("from step 0"), std::string::npos);
}

TEST(StepLedgerTest, MoreThanOnePercentSkipped_StopsTheRun) {
  StepLedger ledger(0, {}, {});
  for (uint64_t step = 0; step < 20; ++step) Complete(&ledger, step, step % 2 == 0, seconds(1));
  EXPECT_EQ(ledger.SkipVerdict(), "");  // 10 of at most 1,000
  Complete(&ledger, 20, true, seconds(1));
  EXPECT_NE(ledger.SkipVerdict(), "");
}

CheckpointPartFact APart(uint64_t step, uint32_t unit) {
  return {step, 0, unit, "layer-0001.safetensors", std::string(64, 'a'), std::string(64, 'b'), 10, ""};
}

TEST(CheckpointAssemblyTest, AllUnitsOfAReportedStep_AreComplete) {
  CheckpointAssembly assembly(2);
  ASSERT_TRUE(assembly.OnPart(APart(10, 1)).ok());
  EXPECT_FALSE(assembly.TakeComplete(10).has_value());
  ASSERT_TRUE(assembly.OnPart(APart(10, 0)).ok());
  EXPECT_FALSE(assembly.TakeComplete(9).has_value());  // its losses are not all known yet
  const auto parts = assembly.TakeComplete(10);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ((*parts)[0].unit, 0u);
  EXPECT_EQ((*parts)[1].unit, 1u);
  EXPECT_FALSE(assembly.TakeComplete(10).has_value());
}

TEST(CheckpointAssemblyTest, MalformedParts_AreRefused) {
  CheckpointAssembly assembly(2);
  EXPECT_EQ(assembly.OnPart(APart(10, 2)).code(), absl::StatusCode::kInvalidArgument);
  CheckpointPartFact part = APart(10, 0);
  part.file = "../../etc/passwd";
  EXPECT_EQ(assembly.OnPart(part).code(), absl::StatusCode::kInvalidArgument);
  part = APart(10, 0);
  part.sha256 = "abc";
  EXPECT_EQ(assembly.OnPart(part).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckpointAssemblyTest, FailedPart_GivesUpThatCheckpointOnly) {
  CheckpointAssembly assembly(1);
  CheckpointPartFact part = APart(10, 0);
  part.error = "disk full";
  EXPECT_EQ(assembly.OnPart(part).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(assembly.OnPart(APart(10, 0)).ok());
  EXPECT_FALSE(assembly.TakeComplete(100).has_value());
  EXPECT_TRUE(assembly.OnPart(APart(20, 0)).ok());
  EXPECT_TRUE(assembly.TakeComplete(100).has_value());
}

}  // namespace
}  // namespace stagecoach
