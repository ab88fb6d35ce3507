#include "common/averaging/round_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

std::string HashOfShard(absl::Span<const float> theta, absl::Span<const float> v) {
  Sha256 hash;
  hash.Update(BytesOf(theta));
  hash.Update(BytesOf(v));
  return hash.FinishHex();
}

RoundExchange::RoundExchange(const ExchangeTerms& terms, uint32_t rank, CommonShard* shard)
    : terms_(terms), rank_(rank), shard_(shard) {}

absl::StatusOr<std::unique_ptr<RoundExchange>> RoundExchange::Begin(const ExchangeTerms& terms, uint32_t rank,
                                                                    CommonShard* shard, ReadContribution pinned) {
  RETURN_IF_ERROR(CheckTerms(terms));
  if (rank >= terms.ranks() || shard->theta.size() != terms.parameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("the owner does not fit the terms of the exchange: shard=", terms.shard, " rank=", rank,
                     " owners=", terms.ranks(), " parameters=", terms.parameters, " held=", shard->theta.size()));
  }
  std::unique_ptr<RoundExchange> round(new RoundExchange(terms, rank, shard));
  if (terms.error_feedback) shard->residual.resize(terms.parameters);
  ReadContribution read = std::move(pinned);
  if (!terms.OfWeights()) {
    read = [shard, weights = std::move(read)](uint64_t first, absl::Span<float> out) {
      weights(first, out);
      for (size_t i = 0; i < out.size(); ++i) out[i] = shard->theta[first + i] - out[i];
    };
  }
  round->exchange_ = PieceExchange::Make(terms, rank, std::move(read),
                                         terms.error_feedback ? shard->residual : absl::Span<const float>());
  round->ProposeIfComplete();
  return round;
}

PieceVerdict RoundExchange::OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) {
  const auto known = std::make_pair(terms_.round, terms_.attempt);
  const auto theirs = std::make_pair(header.round, header.attempt);
  if (header.shard != terms_.shard || from >= terms_.ranks()) return PieceVerdict::kMalformed;
  if (theirs > known) return PieceVerdict::kEarly;
  if (theirs < known || header.epoch != terms_.epochs[from]) return PieceVerdict::kStale;
  if (phase_ != Phase::kExchanging) return phase_ == Phase::kProposed ? PieceVerdict::kDuplicate : PieceVerdict::kStale;
  const PieceVerdict verdict = exchange_->OnPiece(from, header, payload);
  if (verdict == PieceVerdict::kMalformed || verdict == PieceVerdict::kNonFinite) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
             verdict == PieceVerdict::kMalformed ? "a piece does not belong to the exchange" : "a piece is not finite",
             ": round=", terms_.round, " shard=", terms_.shard, " rank=", from, " chunk=", header.chunk,
             " first=", header.first, " bytes=", payload.size())),
         from);
  } else {
    ProposeIfComplete();
  }
  return verdict;
}

bool RoundExchange::HasSend(uint32_t to) const { return exchange_ != nullptr && exchange_->HasSend(to); }

std::optional<OutgoingPiece> RoundExchange::NextSend(uint32_t to) {
  if (!HasSend(to)) return std::nullopt;
  std::optional<OutgoingPiece> piece = exchange_->NextSend(to);
  if (!exchange_->finite()) {
    ProposeIfComplete();
    return std::nullopt;
  }
  if (piece) bytes_sent_ += piece->payload->size();
  return piece;
}

void RoundExchange::ProposeIfComplete() {
  if (phase_ != Phase::kExchanging) return;
  if (!exchange_->finite()) {
    Fail(absl::FailedPreconditionError(absl::StrCat(
             "the contribution or the sum is not finite; this cluster cannot take part: round=", terms_.round,
             " shard=", terms_.shard)),
         std::nullopt);
    return;
  }
  // The residual is complete only when every part has been encoded.
  if (!exchange_->complete()) return;
  if (terms_.OfWeights()) {
    theta_ = std::move(exchange_->sum());
  } else {
    theta_ = shard_->theta;
    if (terms_.outer.HasMomentum()) {
      v_ = shard_->v;
      v_.resize(terms_.parameters);
    }
    OuterStep(terms_.outer, exchange_->sum(), absl::MakeSpan(theta_), absl::MakeSpan(v_));
  }
  hash_ = HashOfShard(theta_, v_);
  phase_ = Phase::kProposed;
}

void RoundExchange::OnPeerBroken(uint32_t rank) {
  if (phase_ != Phase::kExchanging) return;
  Fail(absl::UnavailableError(
           absl::StrCat("an owner is gone: round=", terms_.round, " shard=", terms_.shard, " rank=", rank)),
       rank);
}

absl::Status RoundExchange::Commit(uint64_t round, uint32_t attempt, absl::string_view hash) {
  if (round != terms_.round || attempt != terms_.attempt || phase_ != Phase::kProposed || hash != hash_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this owner does not hold what was committed; fetch the shard from another owner: committed round=", round,
        " attempt=", attempt, ", held round=", terms_.round, " attempt=", terms_.attempt, " shard=", terms_.shard,
        phase_ == Phase::kProposed ? (hash == hash_ ? "" : ", other bits") : ", not complete"));
  }
  shard_->theta = std::move(theta_);
  if (terms_.outer.HasMomentum()) shard_->v = std::move(v_);
  if (terms_.error_feedback) shard_->residual = std::move(exchange_->new_residual());
  phase_ = Phase::kCommitted;
  DropWork();
  return absl::OkStatus();
}

void RoundExchange::Abort(uint64_t round, uint32_t attempt) {
  if (round != terms_.round || attempt != terms_.attempt || phase_ == Phase::kCommitted) return;
  phase_ = Phase::kAborted;
  DropWork();
}

void RoundExchange::Fail(absl::Status status, std::optional<uint32_t> rank) {
  phase_ = Phase::kFailed;
  failure_ = std::move(status);
  broken_ = rank;
  DropWork();
}

void RoundExchange::DropWork() {
  exchange_.reset();
  theta_ = {};
  v_ = {};
}

}  // namespace stagecoach
