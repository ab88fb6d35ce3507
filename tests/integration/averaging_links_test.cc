// Owners of one shard average over real streams: equal bits, the exact mean, the bytes of the formula, early pieces,
// lost partners.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "common/counter_rng.h"
#include "tests/support/averaging_ends.h"

namespace stagecoach {
namespace {

constexpr uint64_t kSeed = 20261204;
constexpr uint64_t kParameters = 300007;

class AveragingLinksTest : public testing::TestWithParam<LinkKind> {
 protected:
  static ExchangeTerms Terms(uint32_t owners, AveragingCodec codec, ExchangeMethod method) {
    ExchangeTerms terms;
    terms.round = 1;
    terms.attempt = 1;
    terms.shard = 4;
    terms.parameters = kParameters;
    terms.codec = codec;
    terms.method = method;
    double sum = 0;
    for (uint32_t i = 0; i < owners; ++i) {
      terms.weights.push_back(static_cast<float>(i + 1));
      terms.epochs.push_back(10 + i);
      sum += i + 1;
    }
    for (float& weight : terms.weights) weight = static_cast<float>(weight / sum);
    terms.chunks = EqualChunks(kParameters, owners);
    terms.piece_parameters = PieceParameters(codec, 65536);
    return terms;
  }
  // Random weights at every owner; returns their weighted mean.
  static std::vector<double> Fill(AveragingEnds* ends, const ExchangeTerms& terms) {
    std::vector<double> mean(kParameters);
    for (uint32_t i = 0; i < terms.ranks(); ++i) {
      const CounterRng rng(kSeed, RngPurpose::kTest, i);
      AveragingEnds::Owner& owner = ends->owner(i);
      owner.shard.theta.assign(kParameters, 0.25f);
      owner.pinned.resize(kParameters);
      for (uint64_t p = 0; p < kParameters; ++p) {
        owner.pinned[p] = 0.25f + 0.01f * (static_cast<float>(rng.Word(p) >> 8) / 8388608.0f - 1);
        mean[p] += static_cast<double>(terms.weights[i]) * static_cast<double>(owner.pinned[p]);
      }
    }
    return mean;
  }
  static void ExpectMean(AveragingEnds* ends, const std::vector<double>& mean, AveragingCodec codec) {
    const double tolerance = codec == AveragingCodec::kFp32 ? 1e-6 : codec == AveragingCodec::kInt4 ? 2e-3 : 1e-4;
    double largest = 0;
    const std::vector<float>& theta = ends->owner(0).shard.theta;
    for (uint64_t p = 0; p < kParameters; ++p) largest = std::max(largest, std::fabs(theta[p] - mean[p]));
    EXPECT_LE(largest, tolerance);
  }
  static std::vector<uint32_t> InOrder(uint32_t owners) {
    std::vector<uint32_t> order(owners);
    std::iota(order.begin(), order.end(), 0u);
    return order;
  }
};

TEST_P(AveragingLinksTest, TwoToFourOwners_SameBitsExactMeanAndBytesOfTheFormula) {
  struct Case {
    uint32_t owners;
    AveragingCodec codec;
    ExchangeMethod method;
  };
  for (const Case& c :
       {Case{2, AveragingCodec::kFp32, ExchangeMethod::kOneShot},
        Case{2, AveragingCodec::kInt4, ExchangeMethod::kDirect},
        Case{3, AveragingCodec::kInt8, ExchangeMethod::kOneShot}, Case{4, AveragingCodec::kBf16, ExchangeMethod::kRing},
        Case{4, AveragingCodec::kInt4, ExchangeMethod::kOneShot}}) {
    SCOPED_TRACE(c.owners);
    const ExchangeTerms terms = Terms(c.owners, c.codec, c.method);
    AveragingEnds ends(GetParam(), c.owners);
    const std::vector<double> mean = Fill(&ends, terms);
    ends.Begin(terms, InOrder(c.owners));
    ASSERT_TRUE(ends.WaitForSettled(1));
    const double expected = 2.0 * (c.owners - 1) / c.owners * static_cast<double>(AveragingBytes(c.codec, kParameters));
    for (uint32_t i = 0; i < c.owners; ++i) {
      EXPECT_EQ(ends.owner(i).phase, RoundExchange::Phase::kProposed);
      EXPECT_EQ(ends.owner(i).hash, ends.owner(0).hash);
      EXPECT_NEAR(static_cast<double>(ends.bytes_sent(i)) / expected, 1, 0.02);
      OnLoop(&ends.owner(i).work,
             [&] { EXPECT_TRUE(ends.owner(i).carrier->Commit(4, 1, 1, ends.owner(0).hash).ok()); });
      EXPECT_EQ(ends.owner(i).shard.theta, ends.owner(0).shard.theta);
    }
    ExpectMean(&ends, mean, c.codec);
  }
}

TEST_P(AveragingLinksTest, OwnerThatBeginsLate_FindsThePiecesThatCameEarly) {
  const ExchangeTerms terms = Terms(2, AveragingCodec::kFp32, ExchangeMethod::kOneShot);
  AveragingEnds ends(GetParam(), 2);
  const std::vector<double> mean = Fill(&ends, terms);
  ends.Begin(terms, {0});
  // Rank 0 has sent its parts, or flow control holds them; nobody can be done.
  EXPECT_EQ(ends.owner(0).settled, 0);
  ends.Begin(terms, {1});
  ASSERT_TRUE(ends.WaitForSettled(1));
  EXPECT_EQ(ends.owner(0).hash, ends.owner(1).hash);
}

TEST_P(AveragingLinksTest, AbortedAttempt_ChangesNothingAndTheNextOneHasTheSameBits) {
  ExchangeTerms terms = Terms(3, AveragingCodec::kInt8, ExchangeMethod::kOneShot);
  std::string hashes[2];
  for (const bool aborted : {false, true}) {
    AveragingEnds ends(GetParam(), 3);
    Fill(&ends, terms);
    terms.attempt = 1;
    if (aborted) {
      ends.Begin(terms, {0, 1});  // the third never begins this attempt
      for (uint32_t i = 0; i < 3; ++i) {
        OnLoop(&ends.owner(i).work, [&] { ends.owner(i).carrier->Abort(1, 1); });
        EXPECT_EQ(ends.owner(i).shard.theta, std::vector<float>(kParameters, 0.25f));
      }
      terms.attempt = 2;
    }
    ends.Begin(terms, {2, 1, 0});
    ASSERT_TRUE(ends.WaitForSettled(1));
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(ends.owner(i).hash, ends.owner(0).hash);
    hashes[aborted] = ends.owner(0).hash;
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_P(AveragingLinksTest, PartnerThatGoes_FailsTheAttemptAndNamesIt) {
  const ExchangeTerms terms = Terms(3, AveragingCodec::kFp32, ExchangeMethod::kOneShot);
  AveragingEnds ends(GetParam(), 3);
  Fill(&ends, terms);
  ends.Begin(terms, {0, 1});
  OnLoop(&ends.owner(2).work, [&] { ends.owner(2).carrier.reset(); });
  ASSERT_TRUE(ends.recorder().WaitUntil([&] { return ends.owner(0).settled > 0 && ends.owner(1).settled > 0; }));
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ends.owner(i).phase, RoundExchange::Phase::kFailed);
    EXPECT_TRUE(ends.recorder().WaitUntil([&] { return !ends.owner(i).lost.empty(); }));
    EXPECT_EQ(ends.recorder().Get([&] { return ends.owner(i).lost.front(); }), "w2");
  }
  // Lost before an attempt: it fails at once, instead of waiting for pieces that never come.
  ExchangeTerms next = terms;
  next.attempt = 2;
  ends.Begin(next, {0, 1});
  EXPECT_TRUE(ends.recorder().WaitUntil([&] { return ends.owner(0).settled > 1 && ends.owner(1).settled > 1; }));
}

INSTANTIATE_TEST_SUITE_P(Links, AveragingLinksTest, testing::Values(LinkKind::kInProcess, LinkKind::kGrpc),
                         [](const auto& kind) { return kind.param == LinkKind::kGrpc ? "Grpc" : "InProcess"; });

}  // namespace
}  // namespace stagecoach
