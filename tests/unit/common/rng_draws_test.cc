#include "common/rng_draws.h"

#include <algorithm>
#include <numeric>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(RngDrawsTest, Below_StaysBelowAndIsEven) {
  RngDraws draws(1, RngPurpose::kTest);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts.at(draws.Below(7));
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

TEST(RngDrawsTest, EqualStreams_DrawTheSameAndOthersDoNot) {
  RngDraws a(1, RngPurpose::kTest, 3), b(1, RngPurpose::kTest, 3), c(1, RngPurpose::kTest, 4);
  bool differs = false;
  for (int i = 0; i < 9; ++i) {
    const uint32_t word = a.Word();
    EXPECT_EQ(word, b.Word());
    differs |= word != c.Word();
  }
  EXPECT_TRUE(differs);
}

TEST(RngDrawsTest, Words_AreThoseOfTheStream) {
  RngDraws draws(5, RngPurpose::kTest, 2);
  const CounterRng rng(5, RngPurpose::kTest, 2);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(draws.Word(), rng.Word(i));
}

TEST(RngDrawsTest, Reals_StayInTheirRange) {
  RngDraws draws(1, RngPurpose::kTest);
  for (int i = 0; i < 1000; ++i) {
    const double between = draws.Between(-1, 2), ratio = draws.LogBetween(1, 16);
    EXPECT_GE(between, -1);
    EXPECT_LT(between, 2);
    EXPECT_GE(ratio, 1);
    EXPECT_LE(ratio, 16);
  }
}

TEST(RngDrawsTest, Shuffle_PermutesAndReachesEveryPlace) {
  RngDraws draws(1, RngPurpose::kTest);
  std::vector<int> first(5);
  for (int i = 0; i < 5000; ++i) {
    std::vector<int> items(5);
    std::iota(items.begin(), items.end(), 0);
    draws.Shuffle(&items);
    ++first.at(items[0]);
    std::sort(items.begin(), items.end());
    for (int k = 0; k < 5; ++k) ASSERT_EQ(items[k], k);
  }
  for (const int count : first) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace stagecoach
