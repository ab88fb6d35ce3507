#include "coordinator/domain/run_ledger.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;

RunLedger TwoClusters() {
  std::vector<ClusterLedgerStart> starts(2);
  for (uint32_t c = 0; c < 2; ++c) starts[c].steps = ClusterSteps({3, 3}, c);
  return RunLedger(0, 2, std::move(starts));
}

void Step(RunLedger* ledger, size_t cluster, uint64_t step, double loss, StepScalarFact scalar = {0.5, 4, false}) {
  ASSERT_TRUE(ledger->OnLoss(seconds(step + 1), cluster, step, loss).ok());
  ASSERT_TRUE(ledger->OnScalar(seconds(step + 1), cluster, step, scalar).ok());
}

DataTally Dealt(uint32_t cluster, uint64_t steps) {
  DataTally tally;
  for (uint64_t n = 0; n < steps * 2; ++n) tally.Add(ClusterSteps({3, 3}, cluster).GlobalMicrobatch(n, 2));
  return tally;
}

TEST(RunLedgerTest, StepOfTheRun_IsDoneWhenEveryClusterHasDoneIt) {
  RunLedger ledger = TwoClusters();
  ledger.Start(seconds(0));
  Step(&ledger, 0, 0, 4);
  Step(&ledger, 0, 1, 3);
  EXPECT_EQ(ledger.steps_done(), 0u);
  EXPECT_EQ(ledger.cluster(0).steps_done(), 2u);
  Step(&ledger, 1, 0, 2, {0.25, 9, true});
  ASSERT_EQ(ledger.steps_done(), 1u);
  EXPECT_EQ(ledger.completed()[0].loss, 3);
  EXPECT_EQ(ledger.completed()[0].scalar.clip, 0.25);
  EXPECT_EQ(ledger.completed()[0].scalar.square_sum, 9);
  EXPECT_TRUE(ledger.completed()[0].scalar.skip);
  EXPECT_EQ(ledger.LossesUpTo(10), std::vector<double>{3});
  EXPECT_EQ(ledger.SkippedUpTo(10), std::vector<uint64_t>{0});
}

TEST(RunLedgerTest, OneCluster_IsTheRun) {
  RunLedger ledger(2, 2, {{ClusterSteps(), {9, 8}, {1}}});
  ledger.Start(seconds(0));
  Step(&ledger, 0, 2, 0.1);
  EXPECT_EQ(ledger.steps_done(), 3u);
  EXPECT_EQ(ledger.LossesUpTo(3), (std::vector<double>{9, 8, 0.1}));
  EXPECT_EQ(ledger.SkippedUpTo(3), std::vector<uint64_t>{1});
  EXPECT_EQ(ledger.OnEvaluation(0, 3, 1.5), 1.5);
}

TEST(RunLedgerTest, Evaluation_IsTheMeanOfAll) {
  RunLedger ledger = TwoClusters();
  EXPECT_EQ(ledger.OnEvaluation(1, 5, 2), std::nullopt);
  EXPECT_EQ(ledger.OnEvaluation(1, 10, 1), std::nullopt);
  EXPECT_EQ(ledger.OnEvaluation(0, 5, 3), 2.5);
}

TEST(RunLedgerTest, DataAsDealt_Holds) {
  RunLedger ledger = TwoClusters();
  ledger.Start(seconds(0));
  ledger.OnConsumed("a", 0, 4, Dealt(0, 4));
  EXPECT_TRUE(ledger.CheckData().ok());  // its steps are not known yet
  for (uint64_t t = 0; t < 4; ++t) Step(&ledger, 0, t, 1);
  for (uint64_t t = 0; t < 4; ++t) Step(&ledger, 1, t, 1);
  ledger.OnConsumed("b", 1, 4, Dealt(1, 4));
  EXPECT_TRUE(ledger.CheckData().ok());
}

TEST(RunLedgerTest, DataOfTheOtherCluster_AreNamed) {
  RunLedger ledger = TwoClusters();
  ledger.Start(seconds(0));
  for (uint64_t t = 0; t < 4; ++t) Step(&ledger, 1, t, 1);
  ledger.OnConsumed("b", 1, 4, Dealt(0, 4));
  EXPECT_EQ(ledger.CheckData().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(ledger.CheckData().message().find("worker b"), absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
