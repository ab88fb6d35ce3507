#include "common/averaging/round_exchange.h"

#include <gtest/gtest.h>

#include <limits>

namespace stagecoach {
namespace {

class RoundExchangeTest : public testing::Test {
 protected:
  RoundExchangeTest() {
    terms_.round = 5;
    terms_.attempt = 2;
    terms_.shard = 3;
    terms_.parameters = 128;
    terms_.codec = AveragingCodec::kFp32;
    terms_.weights = {0.5f, 0.5f};
    terms_.epochs = {7, 8};
    terms_.chunks = EqualChunks(128, 2);
    terms_.piece_parameters = 64;
    for (CommonShard& shard : shards_) shard.theta.assign(128, 1.0f);
  }

  std::unique_ptr<RoundExchange> Begin(uint32_t rank, float value) {
    return *RoundExchange::Begin(terms_, rank, &shards_[rank], [value](uint64_t, absl::Span<float> out) {
      for (float& entry : out) entry = value;
    });
  }
  static void Exchange(RoundExchange* a, RoundExchange* b) {
    for (bool moved = true; moved;) {
      moved = false;
      while (auto piece = a->NextSend(1))
        moved = b->OnPiece(0, piece->header, *piece->payload) == PieceVerdict::kStored;
      while (auto piece = b->NextSend(0))
        moved = a->OnPiece(1, piece->header, *piece->payload) == PieceVerdict::kStored;
    }
  }

  ExchangeTerms terms_;
  CommonShard shards_[2];
};

TEST_F(RoundExchangeTest, NothingChangesBeforeCommit) {
  auto a = Begin(0, 2), b = Begin(1, 4);
  Exchange(a.get(), b.get());
  ASSERT_EQ(a->phase(), RoundExchange::Phase::kProposed);
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_EQ(shards_[0].theta[0], 1.0f);
  EXPECT_TRUE(a->Commit(5, 2, a->hash()).ok());
  EXPECT_EQ(shards_[0].theta, std::vector<float>(128, 3.0f));
  b->Abort(5, 2);
  EXPECT_EQ(shards_[1].theta, std::vector<float>(128, 1.0f));
  EXPECT_TRUE(absl::IsFailedPrecondition(b->Commit(5, 2, a->hash())));
}

TEST_F(RoundExchangeTest, MemoryOfAnAttempt_IsUsedAgainAndItsValuesAreNot) {
  terms_.codec = AveragingCodec::kInt4;
  terms_.error_feedback = true;
  terms_.outer = {OuterOptimizer::Kind::kSgd, 1.0f, 0.5f};
  for (const ExchangeMethod method : {ExchangeMethod::kOneShot, ExchangeMethod::kDirect}) {
    terms_.method = method;
    std::string hashes[2];
    for (const bool used : {false, true}) {
      for (CommonShard& shard : shards_) {
        shard = CommonShard();
        shard.theta.assign(128, 1.0f);
      }
      if (used) {
        auto a = Begin(0, 77), b = Begin(1, 88);
        Exchange(a.get(), b.get());
        ASSERT_EQ(a->phase(), RoundExchange::Phase::kProposed);
        a->Abort(5, 2);
        b->Abort(5, 2);
        EXPECT_EQ(shards_[0].next_theta.size(), 128u);
        EXPECT_EQ(shards_[0].next_v.size(), 128u);
        EXPECT_EQ(shards_[0].next_residual.size(), 128u);
      }
      auto a = Begin(0, 2), b = Begin(1, 4);
      Exchange(a.get(), b.get());
      hashes[used] = a->hash();
      EXPECT_TRUE(a->Commit(5, 2, a->hash()).ok());
      EXPECT_EQ(shards_[0].next_theta, std::vector<float>(128, 1.0f));  // the weights before
      EXPECT_EQ(HashOfShard(shards_[0].theta, shards_[0].v), a->hash());
      EXPECT_EQ(shards_[0].residual.size(), 128u);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

TEST_F(RoundExchangeTest, OtherCommits_AreRefused) {
  auto a = Begin(0, 2), b = Begin(1, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(a->Commit(5, 2, "")));
  Exchange(a.get(), b.get());
  EXPECT_TRUE(absl::IsFailedPrecondition(a->Commit(5, 1, a->hash())));
  EXPECT_TRUE(absl::IsFailedPrecondition(a->Commit(5, 2, std::string(64, '0'))));
  a->Abort(5, 1);  // another attempt
  EXPECT_TRUE(a->Commit(5, 2, a->hash()).ok());
  a->Abort(5, 2);  // too late
  EXPECT_EQ(a->phase(), RoundExchange::Phase::kCommitted);
}

TEST_F(RoundExchangeTest, PiecesOfOtherAttemptsAndPlans_AreTold) {
  auto a = Begin(0, 2), b = Begin(1, 4);
  const OutgoingPiece piece = *b->NextSend(0);
  PieceHeader header = piece.header;
  header.attempt = 1;
  EXPECT_EQ(a->OnPiece(1, header, *piece.payload), PieceVerdict::kStale);
  header.attempt = 3;
  EXPECT_EQ(a->OnPiece(1, header, *piece.payload), PieceVerdict::kEarly);
  header = piece.header;
  header.epoch = 6;
  EXPECT_EQ(a->OnPiece(1, header, *piece.payload), PieceVerdict::kStale);
  EXPECT_EQ(a->OnPiece(1, piece.header, *piece.payload), PieceVerdict::kStored);
  EXPECT_EQ(a->OnPiece(1, piece.header, *piece.payload), PieceVerdict::kDuplicate);
  EXPECT_EQ(a->phase(), RoundExchange::Phase::kExchanging);
}

TEST_F(RoundExchangeTest, PiecesThatDoNotBelong_FailTheAttemptAndNameTheSender) {
  for (int fault = 0; fault < 5; ++fault) {
    auto a = Begin(0, 2), b = Begin(1, 4);
    const OutgoingPiece piece = *b->NextSend(0);
    PieceHeader header = piece.header;
    std::vector<uint8_t> payload = *piece.payload;
    if (fault == 0) header.chunk = 9;
    if (fault == 1) header.first = 1;
    if (fault == 2) payload.pop_back();
    if (fault == 3) header.first = 1 << 20;
    if (fault == 4) payload[3] = payload[2] = 0xff;  // a NaN
    EXPECT_EQ(a->OnPiece(1, header, payload), fault == 4 ? PieceVerdict::kNonFinite : PieceVerdict::kMalformed);
    EXPECT_EQ(a->phase(), RoundExchange::Phase::kFailed) << fault;
    EXPECT_EQ(a->broken_rank(), 1u);
    EXPECT_FALSE(a->HasSend(1));
  }
}

TEST_F(RoundExchangeTest, OwnContributionThatIsNotFinite_FailsWithoutSending) {
  auto a = Begin(0, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(a->NextSend(1).has_value());
  EXPECT_EQ(a->phase(), RoundExchange::Phase::kFailed);
  EXPECT_FALSE(a->broken_rank().has_value());
}

TEST_F(RoundExchangeTest, TermsThatDoNotFit_AreRefused) {
  const auto refused = [&](const std::function<void(ExchangeTerms*)>& change) {
    ExchangeTerms terms = terms_;
    change(&terms);
    return absl::IsInvalidArgument(CheckTerms(terms));
  };
  EXPECT_TRUE(CheckTerms(terms_).ok());
  EXPECT_TRUE(refused([](ExchangeTerms* terms) { terms->weights = {0, 0}; }));
  EXPECT_TRUE(refused([](ExchangeTerms* terms) { terms->weights = {1.5f, -0.5f}; }));
  EXPECT_TRUE(refused([](ExchangeTerms* terms) { terms->piece_parameters = 65; }));
  EXPECT_TRUE(refused([](ExchangeTerms* terms) { terms->chunks[0].count -= 1; }));
  EXPECT_TRUE(refused([](ExchangeTerms* terms) { terms->parameters += 1; }));
  EXPECT_TRUE(refused([](ExchangeTerms* terms) { terms->epochs.pop_back(); }));
  EXPECT_TRUE(refused([](ExchangeTerms* terms) {
    terms->codec = AveragingCodec::kInt8;
    terms->method = ExchangeMethod::kRing;
  }));
  shards_[0].theta.pop_back();
  EXPECT_FALSE(RoundExchange::Begin(terms_, 0, &shards_[0], nullptr).ok());
}

}  // namespace
}  // namespace stagecoach
