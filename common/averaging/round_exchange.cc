#include "common/averaging/round_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace stagecoach {
RoundExchange::RoundExchange(const ExchangeTerms& terms, uint32_t rank, CommonShard* shard)
    : terms_(terms), rank_(rank), shard_(shard), running_hash_(terms.parameters) {}

absl::StatusOr<std::unique_ptr<RoundExchange>> RoundExchange::Begin(const ExchangeTerms& terms, uint32_t rank,
                                                                    CommonShard* shard, ReadContribution pinned) {
  RETURN_IF_ERROR(CheckTerms(terms));
  if (rank >= terms.ranks() || shard->theta.size() != terms.parameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("the owner does not fit the terms of the exchange: shard=", terms.shard, " rank=", rank,
                     " owners=", terms.ranks(), " parameters=", terms.parameters, " held=", shard->theta.size()));
  }
  std::unique_ptr<RoundExchange> round(new RoundExchange(terms, rank, shard));
  PieceExchange::Memory memory;
  memory.sum = std::move(shard->next_theta);
  if (terms.error_feedback) {
    shard->residual.resize(terms.parameters);
    memory.new_residual = std::move(shard->next_residual);
  }
  ReadContribution read = std::move(pinned);
  if (!terms.OfWeights()) {
    read = [shard, weights = std::move(read)](uint64_t first, absl::Span<float> out) {
      weights(first, out);
      for (size_t i = 0; i < out.size(); ++i) out[i] = shard->theta[first + i] - out[i];
    };
  }
  round->exchange_ =
      PieceExchange::Make(terms, rank, std::move(read),
                          terms.error_feedback ? shard->residual : absl::Span<const float>(), std::move(memory));
  if (terms.outer.HasMomentum()) {
    shard->v.resize(terms.parameters);
    round->v_ = std::move(shard->next_v);
    round->v_.resize(terms.parameters);
  }
  round->TakeSums();
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
    TakeSums();
  }
  return verdict;
}

bool RoundExchange::HasSend(uint32_t to) const { return exchange_ != nullptr && exchange_->HasSend(to); }

std::optional<OutgoingPiece> RoundExchange::NextSend(uint32_t to) {
  if (!HasSend(to)) return std::nullopt;
  std::optional<OutgoingPiece> piece = exchange_->NextSend(to);
  if (!exchange_->finite()) {
    TakeSums();
    return std::nullopt;
  }
  if (piece) bytes_sent_ += piece->payload->size();
  return piece;
}

void RoundExchange::TakeSums() {
  if (phase_ != Phase::kExchanging) return;
  if (!exchange_->finite()) {
    Fail(absl::FailedPreconditionError(absl::StrCat(
             "the contribution or the sum is not finite; this cluster cannot take part: round=", terms_.round,
             " shard=", terms_.shard)),
         std::nullopt);
    return;
  }
  for (const ParameterRange& range : exchange_->TakeFinal()) {
    if (!terms_.OfWeights()) StepTo(range);
    running_hash_.OnFinal(range, exchange_->sum(), v_);
  }
  if (!exchange_->complete()) return;
  theta_ = std::move(exchange_->sum());
  hash_ = running_hash_.Finish();
  phase_ = Phase::kProposed;
}

void RoundExchange::StepTo(const ParameterRange& range) {
  const absl::Span<float> values = absl::MakeSpan(exchange_->sum()).subspan(range.first, range.count);
  mean_delta_.assign(values.begin(), values.end());
  std::copy_n(shard_->theta.begin() + static_cast<ptrdiff_t>(range.first), range.count, values.begin());
  absl::Span<float> v;
  if (terms_.outer.HasMomentum()) {
    v = absl::MakeSpan(v_).subspan(range.first, range.count);
    std::copy_n(shard_->v.begin() + static_cast<ptrdiff_t>(range.first), range.count, v.begin());
  }
  OuterStep(terms_.outer, mean_delta_, values, v);
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
  shard_->theta.swap(theta_);
  if (terms_.outer.HasMomentum()) shard_->v.swap(v_);
  if (terms_.error_feedback) shard_->residual.swap(exchange_->new_residual());
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
  if (exchange_ != nullptr) {
    // Before there is a proposal theta' is in the making in the sum.
    shard_->next_theta = theta_.empty() ? std::move(exchange_->sum()) : std::move(theta_);
    shard_->next_residual = std::move(exchange_->new_residual());
    shard_->next_v = std::move(v_);
  }
  exchange_.reset();
  theta_ = {};
  v_ = {};
}

}  // namespace stagecoach
