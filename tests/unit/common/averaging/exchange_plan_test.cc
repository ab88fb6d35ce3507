#include "common/averaging/exchange_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/averaging/elastic_shares.h"
#include "common/counter_rng.h"

namespace stagecoach {
namespace {

void ExpectPartition(const std::vector<ParameterRange>& chunks, uint64_t parameters) {
  uint64_t next = 0;
  for (const ParameterRange& chunk : chunks) {
    EXPECT_EQ(chunk.first, next);
    EXPECT_TRUE(chunk.count == 0 || chunk.first % kAveragingGroup == 0) << chunk.first;
    next += chunk.count;
  }
  EXPECT_EQ(next, parameters);
}

TEST(ExchangePlanTest, Chunks_PartitionTheShardInWholeGroups) {
  for (const uint64_t parameters : {uint64_t{0}, uint64_t{1}, uint64_t{64}, uint64_t{65}, uint64_t{1000003}}) {
    for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
      ExpectPartition(EqualChunks(parameters, ranks), parameters);
      std::vector<double> rates;
      for (uint32_t i = 0; i < ranks; ++i) rates.push_back(1 + i);
      ExpectPartition(ChunksByShare(parameters, ChunkShares(rates)), parameters);
    }
  }
}

TEST(ExchangePlanTest, EqualRates_GiveEqualShares) {
  for (const double share : ChunkShares({5, 5, 5, 5})) EXPECT_DOUBLE_EQ(share, 0.25);
  for (const double share : ChunkShares({1, 100})) EXPECT_DOUBLE_EQ(share, 0.5);
  for (const double share : ChunkShares({1, 0, 3})) EXPECT_DOUBLE_EQ(share, 1.0 / 3);
}

TEST(ExchangePlanTest, Shares_MinimiseTheSlowestSender) {
  for (uint64_t number = 0; number < 200; ++number) {
    const CounterRng rng(11, RngPurpose::kTest, number);
    const uint32_t ranks = 3 + rng.Word(0) % 6;
    std::vector<double> rates;
    for (uint32_t i = 0; i < ranks; ++i) rates.push_back(1 + rng.Word(1 + i) % 20);
    const auto slowest = [&](const std::vector<double>& shares) {
      double last = 0;
      for (uint32_t i = 0; i < ranks; ++i) last = std::max(last, (1 + (ranks - 2) * shares[i]) / rates[i]);
      return last;
    };
    const std::vector<double> best = ChunkShares(rates);
    EXPECT_NEAR(std::accumulate(best.begin(), best.end(), 0.0), 1, 1e-9);
    for (uint32_t attempt = 0; attempt < 50; ++attempt) {
      std::vector<double> other;
      double sum = 0;
      for (uint32_t i = 0; i < ranks; ++i) {
        other.push_back(1 + rng.Word(100 + attempt * ranks + i) % 1000);
        sum += other.back();
      }
      for (double& share : other) share /= sum;
      EXPECT_GE(slowest(other), slowest(best) * (1 - 1e-9)) << "number=" << number;
    }
  }
}

TEST(ExchangePlanTest, Bytes_AreTwoTimesAllButOneChunk) {
  for (uint32_t ranks = 2; ranks <= 8; ++ranks) {
    const uint64_t parameters = 64 * 1000 * ranks;
    const auto chunks = EqualChunks(parameters, ranks);
    for (const AveragingCodec codec : {AveragingCodec::kFp32, AveragingCodec::kInt8}) {
      const double expected = 2.0 * (ranks - 1) / ranks * static_cast<double>(AveragingBytes(codec, parameters));
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (const ExchangeMethod method : {ExchangeMethod::kOneShot, ExchangeMethod::kRing}) {
          EXPECT_NEAR(static_cast<double>(BytesSent(method, codec, chunks, rank, 4096)), expected, 1);
        }
        EXPECT_EQ(BytesSent(ExchangeMethod::kDirect, codec, chunks, rank, 4096),
                  (ranks - 1) * AveragingBytes(codec, parameters));
      }
    }
  }
  EXPECT_EQ(BytesSent(ExchangeMethod::kOneShot, AveragingCodec::kFp32, EqualChunks(1000, 1), 0, 64), 0u);
}

TEST(ExchangePlanTest, Choice_FollowsCodecOwnersAndCost) {
  const ExchangeLink link{12.5e6, 0.025, 65536};
  EXPECT_EQ(ChooseExchange(AveragingCodec::kInt8, 12, 1 << 20, link), ExchangeMethod::kOneShot);
  EXPECT_EQ(ChooseExchange(AveragingCodec::kFp32, 12, 1 << 20, link), ExchangeMethod::kRing);
  EXPECT_EQ(ChooseExchange(AveragingCodec::kFp32, 4, 1 << 10, link), ExchangeMethod::kOneShot);
  for (const AveragingCodec codec : {AveragingCodec::kFp32, AveragingCodec::kInt4}) {
    EXPECT_EQ(ChooseExchange(codec, 2, 1 << 20, link), ExchangeMethod::kDirect);
  }
  EXPECT_NEAR(DirectSeconds(2, 32e6, link), 0.025 + 2.56, 1e-9);
  EXPECT_EQ(DirectSeconds(1, 1e9, link), 0);
  EXPECT_NEAR(OneShotSeconds(2, 32e6, link), 0.05 + 2.56, 1e-9);
  EXPECT_NEAR(RingSeconds(4, 32e6, link), 6 * 8e6 / 12.5e6, 1e-9);
  EXPECT_EQ(OneShotSeconds(1, 1e9, link), 0);
}

TEST(ExchangePlanTest, Pieces_AreWholeGroupsWithinTheirBytes) {
  EXPECT_EQ(PieceParameters(AveragingCodec::kFp32, 65536), 16384u);
  EXPECT_EQ(PieceParameters(AveragingCodec::kInt8, 65536), 992u * 64);
  EXPECT_LE(AveragingBytes(AveragingCodec::kInt8, PieceParameters(AveragingCodec::kInt8, 65536)), 65536u);
  EXPECT_EQ(PieceParameters(AveragingCodec::kFp32, 1), 64u);
}

TEST(ExchangePlanTest, RingOrder_KeepsNeighboursTogether) {
  // Two sites of three: a pass between sites costs ten times more, so a good ring crosses twice.
  std::vector<double> seconds(36);
  for (uint32_t a = 0; a < 6; ++a) {
    for (uint32_t b = 0; b < 6; ++b) seconds[a * 6 + b] = a % 2 == b % 2 ? 1 : 10;
  }
  const std::vector<uint32_t> order = RingOrder(6, seconds);
  int crossings = 0;
  for (uint32_t i = 0; i < 6; ++i) crossings += order[i] % 2 != order[(i + 1) % 6] % 2;
  EXPECT_EQ(crossings, 2);
  EXPECT_EQ(RingOrder(1, {0.0}), (std::vector<uint32_t>{0}));
}

TEST(ElasticSharesTest, FasterClusters_GetMoreAndEndTogether) {
  EXPECT_EQ(ElasticShares(12, {{1, 0}, {2, 0}}), (std::vector<uint64_t>{8, 4}));
  EXPECT_EQ(ElasticShares(10, {{1, 5}, {1, 0}}), (std::vector<uint64_t>{3, 7}));  // 2.5 and 7.5: the lower one first
  EXPECT_EQ(ElasticShares(10, {{1, 0}, {1000, 0}}), (std::vector<uint64_t>{10, 0}));
  EXPECT_EQ(ElasticShares(7, {{1, 0}, {0, 0}, {1, 0}}), (std::vector<uint64_t>{4, 0, 3}));
}

TEST(ElasticSharesTest, RandomClusters_AreWithinOneUnitOfTheBest) {
  for (uint64_t number = 0; number < 300; ++number) {
    const CounterRng rng(5, RngPurpose::kTest, number);
    const uint32_t clusters = 1 + rng.Word(0) % 6;
    const uint64_t total = 1 + rng.Word(1) % 200;
    std::vector<ClusterSpeed> speeds;
    double rate = 0, slowest = 0;
    for (uint32_t c = 0; c < clusters; ++c) {
      speeds.push_back({0.1 + rng.Word(2 + c) % 10, 0});
      rate += 1 / speeds.back().unit_seconds;
      slowest = std::max(slowest, speeds.back().unit_seconds);
    }
    const std::vector<uint64_t> shares = ElasticShares(total, speeds);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), uint64_t{0}), total) << number;
    EXPECT_LE(FinishSeconds(shares, speeds), static_cast<double>(total) / rate + slowest + 1e-9) << number;
  }
}

TEST(ElasticSharesTest, SmallGains_DoNotMoveShares) {
  const std::vector<uint64_t> current = {50, 50};
  EXPECT_EQ(UpdatedShares(current, 100, {{1.0, 0}, {1.04, 0}}), current);
  EXPECT_NE(UpdatedShares(current, 100, {{1.0, 0}, {1.5, 0}}), current);
  EXPECT_EQ(UpdatedShares(current, 100, {{1.0, 0}, {0, 0}}), (std::vector<uint64_t>{100, 0}));
  EXPECT_EQ(UpdatedShares({100}, 100, {{1.0, 0}, {1.0, 0}}), current);
}

}  // namespace
}  // namespace stagecoach
