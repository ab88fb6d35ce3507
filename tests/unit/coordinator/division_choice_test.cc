#include "coordinator/domain/division_choice.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(DivisionChoiceTest, TheFastestWins) {
  EXPECT_EQ(BestDivision({{1, 1000, 0.1}}), 0u);
  EXPECT_EQ(BestDivision({{1, 1000, 0.1}, {2, 1030, 0.5}, {4, 900, 0.01}}), 1u);
}

TEST(DivisionChoiceTest, AmongEquallyFast_TheShorterLoopAndThenFewerClusters) {
  EXPECT_EQ(BestDivision({{1, 1000, 0.76}, {2, 995, 0.68}, {4, 1001, 0.67}}), 1u);
  EXPECT_EQ(BestDivision({{1, 990, 0.68}, {2, 995, 0.68}, {4, 1001, 0.67}}), 0u);
  // Short loops of slow divisions do not count.
  EXPECT_EQ(BestDivision({{1, 1000, 0.7}, {2, 700, 0.1}}), 0u);
}

}  // namespace
}  // namespace stagecoach
