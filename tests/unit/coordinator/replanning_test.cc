#include "coordinator/domain/replanning.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using std::chrono::minutes;
using Names = std::vector<std::string>;
using Sizes = std::vector<size_t>;

TEST(ReplanBudgetTest, NewPlans_AreFewWithinAnHour) {
  ReplanBudget budget(2);
  EXPECT_TRUE(budget.Allows(minutes(0)));
  budget.Spend(minutes(0));
  EXPECT_TRUE(budget.Allows(minutes(1)));
  budget.Spend(minutes(30));
  EXPECT_FALSE(budget.Allows(minutes(59)));
  EXPECT_TRUE(budget.Allows(minutes(60)));  // the first one is an hour old
  budget.Spend(minutes(60));
  EXPECT_FALSE(budget.Allows(minutes(89)));
  EXPECT_TRUE(budget.Allows(minutes(90)));
}

TEST(PlacementWithoutTest, Standby_TakesTheSamePlace) {
  const auto placement = PlacementWithout({{"a", "b", "c", "d"}, {2, 2}}, "c", {"e", "f"});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->members, (Names{"a", "b", "e", "d"}));
  EXPECT_EQ(placement->cluster_sizes, (Sizes{2, 2}));
}

TEST(PlacementWithoutTest, NoStandby_OneStageFewer) {
  auto placement = PlacementWithout({{"a", "b", "c"}, {3}}, "a", {});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->members, (Names{"b", "c"}));
  EXPECT_EQ(placement->cluster_sizes, (Sizes{2}));
  placement = PlacementWithout({{"a", "b", "c", "d", "e"}, {2, 3}}, "e", {});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->members, (Names{"a", "b", "c", "d"}));
  EXPECT_EQ(placement->cluster_sizes, (Sizes{2, 2}));
}

TEST(PlacementWithoutTest, OnlyStageOfACluster_IsReplacedFromTheLargestOne) {
  auto placement = PlacementWithout({{"a", "b", "c", "d"}, {1, 3}}, "a", {});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->members, (Names{"d", "b", "c"}));
  EXPECT_EQ(placement->cluster_sizes, (Sizes{1, 2}));
  placement = PlacementWithout({{"a", "b", "c", "d", "e"}, {2, 2, 1}}, "e", {});
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->members, (Names{"a", "c", "d", "b"}));
  EXPECT_EQ(placement->cluster_sizes, (Sizes{1, 2, 1}));
}

TEST(PlacementWithoutTest, FewerWorkersThanClusters_HaveNone) {
  EXPECT_FALSE(PlacementWithout({{"a"}, {1}}, "a", {}).has_value());
  EXPECT_FALSE(PlacementWithout({{"a", "b"}, {1, 1}}, "b", {}).has_value());
}

}  // namespace
}  // namespace stagecoach
