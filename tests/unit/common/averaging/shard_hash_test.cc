#include "common/averaging/shard_hash.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/counter_rng.h"
#include "common/sha256.h"

namespace stagecoach {
namespace {

constexpr uint64_t kSeed = 20261207;

std::vector<float> Values(uint64_t count, uint64_t stream) {
  const CounterRng rng(kSeed, RngPurpose::kTest, stream);
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(rng.Word(i) >> 8);
  return values;
}

TEST(ShardHashTest, Order_DoesNotMatter) {
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, kHashBlock - 1, kHashBlock, 3 * kHashBlock + 77}) {
    const std::vector<float> theta = Values(count, 1), v = Values(count, 2);
    const std::string whole = HashOfShard(theta, v);
    const CounterRng rng(kSeed, RngPurpose::kTest, count);
    std::vector<ParameterRange> ranges;
    uint64_t word = 0;
    for (uint64_t first = 0; first < count;) {
      const uint64_t here = std::min<uint64_t>(count - first, 1 + rng.Word(word++) % (2 * kHashBlock));
      ranges.push_back({first, here});
      first += here;
    }
    for (size_t i = ranges.size(); i > 1; --i) std::swap(ranges[i - 1], ranges[rng.Word(word++) % i]);
    ShardHash hash(count);
    for (const ParameterRange& range : ranges) hash.OnFinal(range, theta, v);
    EXPECT_EQ(hash.Finish(), whole) << "count=" << count;
    EXPECT_EQ(whole.size(), 64u);
  }
}

TEST(ShardHashTest, BlocksAreHashedAsDocumented) {
  const std::vector<float> theta = Values(kHashBlock + 10, 1);
  const auto block = [&](uint64_t first, uint64_t count) {
    return Sha256Hex({reinterpret_cast<const char*>(theta.data() + first), count * sizeof(float)});
  };
  EXPECT_EQ(HashOfShard(theta, {}), Sha256Hex(block(0, kHashBlock) + block(kHashBlock, 10)));
}

TEST(ShardHashTest, EveryValueOfBoth_Counts) {
  std::vector<float> theta = Values(1000, 1), v = Values(1000, 2);
  const std::string before = HashOfShard(theta, v);
  EXPECT_NE(HashOfShard(theta, {}), before);
  ++v[999];
  EXPECT_NE(HashOfShard(theta, v), before);
  --v[999];
  ++theta[0];
  EXPECT_NE(HashOfShard(theta, v), before);
}

}  // namespace
}  // namespace stagecoach
