#include "common/schedule_rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/counter_rng.h"

namespace stagecoach {
namespace {

// The rule as written on the page, one microbatch after the other.
std::vector<uint64_t> NaiveVersions(uint32_t m, const std::vector<JTableEntry>& table, uint64_t count) {
  std::vector<uint64_t> versions;
  for (uint64_t n = 0; n < count; ++n) {
    int64_t j = 0;
    for (const JTableEntry& entry : table) {
      if (entry.from_step <= n / m) j = entry.j;
    }
    const int64_t shifted = static_cast<int64_t>(n) - j;
    const int64_t floor = shifted < 0 ? 0 : shifted / m;
    versions.push_back(std::max<uint64_t>(versions.empty() ? 0 : versions.back(), static_cast<uint64_t>(floor)));
  }
  return versions;
}

TEST(VersionRule, RandomTables_EqualTheDefinition) {
  const CounterRng rng(5, RngPurpose::kTest);
  uint64_t draw = 0;
  for (int round = 0; round < 500; ++round) {
    const uint32_t m = rng.Word(draw++) % 7 + 1;
    std::vector<JTableEntry> table{{0, rng.Word(draw++) % (3 * m)}};
    while (rng.Word(draw++) % 2 == 0)
      table.push_back({table.back().from_step + 1 + rng.Word(draw++) % 4, rng.Word(draw++) % (3 * m)});
    const VersionRule rule(m, table);
    const auto expected = NaiveVersions(m, table, 30 * m);
    for (uint64_t n = 0; n < expected.size(); ++n) {
      ASSERT_EQ(rule.VersionOf(n), expected[n]) << "round " << round << " n " << n;
      ASSERT_LE(n / m - rule.VersionOf(n), rule.MaxLag());
    }
  }
}

TEST(VersionRule, NamedSchedules_HaveTheirStaleness) {
  const VersionRule sync(4, {{0, 0}}), two_buffered(4, {{0, 4}}), fractional(4, {{0, 1}}), long_delay(4, {{0, 6}});
  EXPECT_EQ(sync.VersionOf(11), 2u);
  EXPECT_EQ(two_buffered.VersionOf(8), 1u);
  EXPECT_EQ(two_buffered.VersionOf(11), 1u);
  EXPECT_EQ(fractional.VersionOf(8), 1u);
  EXPECT_EQ(fractional.VersionOf(9), 2u);
  EXPECT_EQ(long_delay.MaxLag(), 2u);
  EXPECT_EQ(long_delay.VersionOf(13), 1u);
  EXPECT_EQ(long_delay.VersionOf(14), 2u);
}

TEST(ItemOrder, EverySequence_NamesOneItemInOrder) {
  for (const uint64_t every : {0, 1, 2, 3, 7}) {
    for (const uint32_t evaluations : {0u, 1u, 3u}) {
      const uint32_t m = 3;
      const uint64_t steps = 7;
      const ItemOrder order(m, steps, every, evaluations);
      uint64_t sequence = 0;
      for (uint64_t s = 0; s <= steps; ++s) {
        if (s > 0 && order.EvaluationDue(s)) {
          for (uint32_t e = 0; e < evaluations; ++e, ++sequence) {
            EXPECT_EQ(order.At(sequence), (Item{sequence, s * m, true, e}));
          }
        }
        EXPECT_EQ(order.FirstSequenceAfter(s), sequence);
        for (uint64_t j = 0; j < m && s < steps; ++j, ++sequence) {
          EXPECT_EQ(order.At(sequence), (Item{sequence, s * m + j, false, 0}));
          EXPECT_EQ(order.SequenceOfMicrobatch(s * m + j), sequence);
        }
      }
      EXPECT_EQ(order.EvaluationDue(steps), evaluations > 0);
    }
  }
}

TEST(ScheduleChoice, LongLoop_ChoosesDelayAndShortLoop_ChoosesSynchronous) {
  EXPECT_EQ(WindowOf(10.5, 1.0, 0, 4), 11u + 2u);
  EXPECT_EQ(WindowOf(1.0, 1.0, 3, 4), 1u + 1u);
  EXPECT_NEAR(SynchronousEfficiency(16, 1.0, 9.0, 0.5), 16 / 24.5, 1e-12);
  EXPECT_EQ(ChooseJ(16, 13, 1.0, 9.0, 0.5), 13u);
  EXPECT_EQ(ChooseJ(16, 13, 1.0, 9.0, 2.5), 15u);
  EXPECT_EQ(ChooseJ(400, 13, 1.0, 9.0, 0.5), 0u);
}

}  // namespace
}  // namespace stagecoach
