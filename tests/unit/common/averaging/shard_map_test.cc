#include "common/averaging/shard_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/counter_rng.h"

namespace stagecoach {
namespace {

TEST(ShardMapTest, TwoClusters_ShardsAreTheCommonRefinement) {
  const auto shards = RefineCuts({{0, 3, 6, 10}, {0, 5, 10}});
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_EQ(shards->size(), 4u);
  EXPECT_EQ((*shards)[1].begin, 3u);
  EXPECT_EQ((*shards)[1].end, 5u);
  EXPECT_EQ((*shards)[1].owner, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ((*shards)[2].owner, (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(ShardsOfStage(*shards, 0, 1), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(ShardsOfStage(*shards, 1, 1), (std::vector<uint32_t>{2, 3}));
  const std::vector<uint64_t> units = {100, 1, 1, 1, 1, 1, 1, 1, 1, 50};
  EXPECT_EQ(ShardParameters((*shards)[0], units), 102u);
  EXPECT_EQ(ShardParameters((*shards)[3], units), 53u);
}

TEST(ShardMapTest, CutsThatDoNotFit_AreRefusedWithTheirCluster) {
  EXPECT_FALSE(RefineCuts({}).ok());
  const auto shorter = RefineCuts({{0, 10}, {0, 9}});
  ASSERT_FALSE(shorter.ok());
  EXPECT_NE(shorter.status().message().find("cluster=1"), absl::string_view::npos) << shorter.status();
  EXPECT_FALSE(RefineCuts({{0, 4, 4, 10}}).ok());
  EXPECT_FALSE(RefineCuts({{1, 10}}).ok());
  EXPECT_FALSE(RefineCuts(std::vector<StageCuts>(kMaxClusters + 1, {0, 1})).ok());
}

TEST(ShardMapTest, RandomCuts_EveryUnitHasOneOwnerInEachCluster) {
  const uint64_t seed = 7;
  for (uint64_t number = 0; number < 500; ++number) {
    const CounterRng rng(seed, RngPurpose::kTest, number);
    uint64_t word = 0;
    const uint32_t units = 1 + rng.Word(word++) % 40, clusters = 1 + rng.Word(word++) % 8;
    std::vector<StageCuts> cuts(clusters);
    size_t stages = 0;
    for (StageCuts& own : cuts) {
      own = {0};
      for (uint32_t unit = 1; unit < units; ++unit) {
        if (rng.Word(word++) % 4 == 0) own.push_back(unit);
      }
      own.push_back(units);
      stages += own.size() - 2;
    }
    const auto shards = RefineCuts(cuts);
    ASSERT_TRUE(shards.ok()) << shards.status() << " seed=" << seed << " number=" << number;
    EXPECT_LE(shards->size(), 1 + stages);
    uint32_t next = 0;
    for (const Shard& shard : *shards) {
      EXPECT_EQ(shard.begin, next);
      next = shard.end;
      for (uint32_t c = 0; c < clusters; ++c) {
        EXPECT_LE(cuts[c][shard.owner[c]], shard.begin);
        EXPECT_GE(cuts[c][shard.owner[c] + 1], shard.end);
      }
    }
    EXPECT_EQ(next, units);
  }
}

}  // namespace
}  // namespace stagecoach
