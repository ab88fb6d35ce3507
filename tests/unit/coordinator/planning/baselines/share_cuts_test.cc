#include "coordinator/domain/planning/baselines/share_cuts.h"

#include <memory>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/support/fleet_families.h"

namespace stagecoach {
namespace {

class ShareCutsTest : public ::testing::Test {
 protected:
  const PlanModel model_ = testing::SyntheticModel();
  const Fleet fleet_ = testing::FamilyFleet(testing::FleetFamily::kLan, 4, 1);
  const CostModel costs_{model_, fleet_, std::make_shared<const LinkCosts>(fleet_, model_.frame_bytes), {16, 1, 0}};
};

TEST_F(ShareCutsTest, EqualCuts_DifferByAtMostOne) {
  EXPECT_EQ(EqualCuts(costs_, 4), (std::vector<uint32_t>{0, 7, 14, 20, 26}));
  EXPECT_EQ(EqualCuts(costs_, 1), (std::vector<uint32_t>{0, 26}));
  EXPECT_EQ(EqualCuts(costs_, 26).size(), 27u);
}

TEST_F(ShareCutsTest, Shares_AreFilledButNotExceeded) {
  EXPECT_EQ(CutsByShares(costs_, {0.5, 0.25, 0.25}), (std::vector<uint32_t>{0, 13, 19, 26}));
  EXPECT_EQ(CutsByShares(costs_, {1}), (std::vector<uint32_t>{0, 26}));
  // A unit larger than the share is a stage of its own.
  EXPECT_EQ(CutsByShares(costs_, {0.01, 0.99}), (std::vector<uint32_t>{0, 1, 26}));
}

TEST_F(ShareCutsTest, StageWithoutUnits_IsRefused) {
  EXPECT_EQ(CutsByShares(costs_, {0.5, 0.5, 0.1}), std::nullopt);
  EXPECT_EQ(CutsByShares(costs_, std::vector<double>(27, 1.0 / 27)), std::nullopt);
}

TEST(RoundedEqualSharesTest, Shares_BreakBeyondTenWorkers) {
  EXPECT_EQ(RoundedEqualShares(1), (std::vector<double>{1}));
  EXPECT_EQ(RoundedEqualShares(3), (std::vector<double>{0.3, 0.3, 0.4}));
  EXPECT_EQ(RoundedEqualShares(4), (std::vector<double>{0.2, 0.2, 0.2, 0.4}));
  EXPECT_EQ(RoundedEqualShares(6).back(), 0);
  EXPECT_EQ(RoundedEqualShares(10).back(), 0.1);
  EXPECT_EQ(RoundedEqualShares(11).back(), 0);
  for (uint32_t stages = 12; stages <= 20; ++stages) EXPECT_LT(RoundedEqualShares(stages).back(), 0) << stages;
  EXPECT_EQ(RoundedEqualShares(21).front(), 0);
}

}  // namespace
}  // namespace stagecoach
