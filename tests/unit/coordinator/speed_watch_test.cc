#include "coordinator/domain/speed_watch.h"

#include <limits>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// Reports `microbatches` more, each of `seconds`, in reports of `each`; true if slow() changed on the way.
bool Report(SpeedWatch* watch, double seconds, uint64_t microbatches, uint64_t each, uint64_t* count, double* total) {
  bool changed = false;
  for (uint64_t done = 0; done < microbatches; done += each) {
    *count += each;
    *total += seconds * static_cast<double>(each);
    changed |= watch->OnTotals(*count, *total);
  }
  return changed;
}

TEST(EstimateTest, OneSample_IsTheValueWhateverItsWeight) {
  Estimate estimate;
  estimate.Add(3, 1);
  EXPECT_DOUBLE_EQ(estimate.value(), 3);
  EXPECT_DOUBLE_EQ(estimate.variance(), 0);
}

TEST(EstimateTest, AMeanOfManyWeighsLikeTheManyOneByOne) {
  Estimate together, single;
  for (Estimate* estimate : {&together, &single}) estimate->Add(10);
  together.Add(2, 5);
  for (int i = 0; i < 5; ++i) single.Add(2);
  EXPECT_NEAR(together.value(), single.value(), 1e-12);
  EXPECT_EQ(together.samples(), 6u);
  EXPECT_GT(together.variance(), 0);
}

TEST(SpeedWatchTest, AStageAtHalfSpeed_IsSlowAfterTwentyToThirtyMicrobatches) {
  for (const uint64_t each : {1, 4}) {
    SpeedWatch watch(0.1);
    uint64_t count = 0;
    double total = 0;
    EXPECT_FALSE(Report(&watch, 0.1, 100, each, &count, &total));
    EXPECT_FALSE(Report(&watch, 0.2, 16, each, &count, &total)) << each;
    EXPECT_TRUE(Report(&watch, 0.2, 16, each, &count, &total)) << each;
    EXPECT_TRUE(watch.slow());
    EXPECT_NEAR(watch.seconds().value(), 0.2, 0.001);
  }
}

TEST(SpeedWatchTest, OneSlowStepDoesNothing) {
  SpeedWatch watch(0.1);
  uint64_t count = 0;
  double total = 0;
  Report(&watch, 0.1, 50, 1, &count, &total);
  EXPECT_FALSE(Report(&watch, 1.0, 1, 1, &count, &total));
  EXPECT_FALSE(Report(&watch, 0.1, 50, 1, &count, &total));
}

TEST(SpeedWatchTest, AStageThatRecovered_IsInOrderAgain) {
  SpeedWatch watch(0.1);
  uint64_t count = 0;
  double total = 0;
  Report(&watch, 0.3, 60, 1, &count, &total);
  ASSERT_TRUE(watch.slow());
  EXPECT_TRUE(Report(&watch, 0.1, 40, 1, &count, &total));
  EXPECT_FALSE(watch.slow());
}

TEST(SpeedWatchTest, TotalsThatMakeNoSense_AreIgnored) {
  SpeedWatch watch(0.1);
  EXPECT_FALSE(watch.OnTotals(10, 1.0));
  EXPECT_FALSE(watch.OnTotals(5, 2.0));
  EXPECT_FALSE(watch.OnTotals(40, 0.5));
  EXPECT_FALSE(watch.OnTotals(40, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(watch.OnTotals(80, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(watch.seconds().samples(), 10u);
}

}  // namespace
}  // namespace stagecoach
