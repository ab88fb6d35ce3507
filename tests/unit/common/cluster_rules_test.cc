#include "common/cluster_rules.h"

#include <algorithm>
#include <set>
#include <vector>

#include "common/data_tally.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(ClusterStepsTest, OneCluster_CountsAsBefore) {
  const ClusterSteps alone;
  const ClusterSteps by_hundreds({100}, 0);
  for (uint64_t t = 0; t < 1000; ++t) {
    EXPECT_EQ(alone.GlobalStep(t), t);
    EXPECT_EQ(by_hundreds.GlobalStep(t), t);
    EXPECT_EQ(alone.GlobalMicrobatch(t, 7), t);
  }
}

TEST(ClusterStepsTest, WholeRounds_UseEveryGlobalStepOnce) {
  for (const std::vector<uint64_t>& shares :
       {std::vector<uint64_t>{1, 1}, {5, 5, 5}, {3, 1, 7}, {100, 100}, {1, 2, 3, 4, 5, 6, 7, 8}}) {
    constexpr uint64_t kRounds = 4;
    std::set<uint64_t> seen;
    uint64_t total = 0;
    for (uint32_t c = 0; c < shares.size(); ++c) {
      const ClusterSteps steps(shares, c);
      for (uint64_t t = 0; t < kRounds * shares[c]; ++t) EXPECT_TRUE(seen.insert(steps.GlobalStep(t)).second);
      total += kRounds * shares[c];
    }
    EXPECT_EQ(seen.size(), total);
    EXPECT_EQ(*seen.rbegin(), total - 1);  // no gaps
  }
}

TEST(ClusterStepsTest, UnfinishedRounds_StayDisjoint) {
  std::set<uint64_t> seen;
  for (uint32_t c = 0; c < 3; ++c) {
    const ClusterSteps steps({10, 4, 6}, c);
    for (uint64_t t = 0; t < 23 + c; ++t) EXPECT_TRUE(seen.insert(steps.GlobalStep(t)).second);
  }
}

TEST(ClusterStepsTest, Microbatches_FollowTheirStep) {
  const ClusterSteps second({10, 10}, 1);
  EXPECT_EQ(second.GlobalStep(0), 10u);
  EXPECT_EQ(second.GlobalStep(9), 19u);
  EXPECT_EQ(second.GlobalStep(10), 30u);
  EXPECT_EQ(second.GlobalMicrobatch(10 * 4 + 3, 4), 30u * 4 + 3);
}

TEST(EqualClusterSizesTest, Remainder_GoesToTheFirst) {
  EXPECT_EQ(EqualClusterSizes(4, 2), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(EqualClusterSizes(7, 3), (std::vector<size_t>{3, 2, 2}));
  EXPECT_EQ(EqualClusterSizes(3, 3), (std::vector<size_t>{1, 1, 1}));
}

TEST(DataTallyTest, Order_DoesNotMatterAndEveryIndexDoes) {
  DataTally up, down, twice, missing;
  for (uint64_t i = 0; i < 100; ++i) up.Add(i);
  for (uint64_t i = 100; i-- > 0;) down.Add(i);
  for (uint64_t i = 0; i < 100; ++i) twice.Add(i == 50 ? 51 : i);
  for (uint64_t i = 0; i < 99; ++i) missing.Add(i);
  EXPECT_EQ(up, down);
  EXPECT_NE(up, twice);
  EXPECT_NE(up, missing);
  EXPECT_EQ(up.microbatches(), 100u);
}

}  // namespace
}  // namespace stagecoach
