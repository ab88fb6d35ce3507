#include "worker/average/round_carrier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagecoach {

RoundCarrier::RoundCarrier(Options options) : options_(std::move(options)), pacer_(options_.pacer) {
  PartnerStreams::Options streams;
  streams.work = options_.work;
  streams.links_loop = options_.links_loop;
  streams.links = options_.links;
  streams.connect_seconds = options_.connect_seconds;
  streams.on_piece = [this](const std::string& partner, LinkFrame frame) { OnPiece(partner, frame); };
  streams.on_ready = [this](const std::string&) { Pump(); };
  streams.on_lost = [this](const std::string& partner, const absl::Status& status) { OnLost(partner, status); };
  streams_ = std::make_unique<PartnerStreams>(std::move(streams));
}

RoundCarrier::~RoundCarrier() { *alive_ = false; }

uint64_t RoundCarrier::dropped(PieceVerdict verdict) const {
  const auto found = dropped_.find(verdict);
  return found == dropped_.end() ? 0 : found->second;
}

void RoundCarrier::ClosePartner(const std::string& partner) {
  streams_->Close(partner);
  early_.erase(partner);
}

void RoundCarrier::Begin(std::unique_ptr<RoundExchange> exchange, std::vector<std::string> names) {
  const ExchangeTerms& terms = exchange->terms();
  const uint32_t shard = terms.shard;
  if (const auto found = served_.find(shard); found != served_.end()) {
    const ExchangeTerms& old = found->second.exchange->terms();
    found->second.exchange->Abort(old.round, old.attempt);
  }
  Served& served = served_[shard];
  served = {std::move(exchange), std::move(names), false};
  for (uint32_t rank = 0; rank < served.names.size(); ++rank) {
    const std::string& name = served.names[rank];
    if (!name.empty() && !streams_->IsOpen(name)) served.exchange->OnPeerBroken(rank);  // lost before this attempt
  }
  Settle(&served);
  const auto waiting = std::exchange(early_, {});
  for (const auto& [partner, frames] : waiting) {
    for (const LinkFrame& frame : frames) OnPiece(partner, frame);
  }
  Pump();
}

absl::Status RoundCarrier::Commit(uint32_t shard, uint64_t round, uint32_t attempt, absl::string_view hash) {
  const auto found = served_.find(shard);
  if (found == served_.end()) {
    return absl::NotFoundError(
        absl::StrCat("no attempt at this shard here; fetch it from another owner: round=", round, " shard=", shard));
  }
  const absl::Status status = found->second.exchange->Commit(round, attempt, hash);
  if (!status.ok()) return status;
  past_[shard] = {round, attempt};
  served_.erase(found);
  return status;
}

void RoundCarrier::Abort(uint64_t round, uint32_t attempt) {
  for (auto it = served_.begin(); it != served_.end();) {
    const ExchangeTerms& terms = it->second.exchange->terms();
    if (terms.round != round || terms.attempt != attempt) {
      ++it;
      continue;
    }
    it->second.exchange->Abort(round, attempt);
    past_[it->first] = {round, attempt};
    it = served_.erase(it);
  }
}

PieceVerdict RoundCarrier::Offer(const std::string& partner, const LinkFrame& frame) {
  const PieceHeader& header = frame.piece;
  const auto found = served_.find(header.shard);
  if (found == served_.end()) {
    const auto past = past_.find(header.shard);
    const bool over = past != past_.end() && std::make_pair(header.round, header.attempt) <= past->second;
    return over ? PieceVerdict::kStale : PieceVerdict::kEarly;
  }
  Served& served = found->second;
  const auto name = std::find(served.names.begin(), served.names.end(), partner);
  // Who is no owner in this attempt may be one in the next.
  if (name == served.names.end()) {
    const ExchangeTerms& terms = served.exchange->terms();
    const bool later = std::make_pair(header.round, header.attempt) > std::make_pair(terms.round, terms.attempt);
    return later ? PieceVerdict::kEarly : PieceVerdict::kStale;
  }
  const PieceVerdict verdict =
      served.exchange->OnPiece(static_cast<uint32_t>(name - served.names.begin()), header, frame.payload->bytes());
  Settle(&served);
  return verdict;
}

void RoundCarrier::OnPiece(const std::string& partner, const LinkFrame& frame) {
  if (frame.kind != FrameKind::kPiece || frame.payload == nullptr) return;
  const PieceVerdict verdict = Offer(partner, frame);
  if (verdict == PieceVerdict::kEarly) {
    std::deque<LinkFrame>& early = early_[partner];
    if (early.size() < kMaxEarlyPieces) {
      early.push_back(frame);
      return;
    }
    OnLost(partner, absl::ResourceExhaustedError(
                        absl::StrCat("too many pieces of an attempt that has not begun here: partner=", partner,
                                     " limit=", kMaxEarlyPieces)));
  }
  if (verdict != PieceVerdict::kStored) ++dropped_[verdict];
  Pump();
}

void RoundCarrier::OnLost(const std::string& partner, const absl::Status& status) {
  ClosePartner(partner);
  for (auto& [shard, served] : served_) {
    const auto name = std::find(served.names.begin(), served.names.end(), partner);
    if (name == served.names.end()) continue;
    served.exchange->OnPeerBroken(static_cast<uint32_t>(name - served.names.begin()));
    Settle(&served);
  }
  if (options_.on_lost) options_.on_lost(partner, status);
}

void RoundCarrier::Settle(Served* served) {
  const RoundExchange::Phase phase = served->exchange->phase();
  if (served->settled || (phase != RoundExchange::Phase::kProposed && phase != RoundExchange::Phase::kFailed)) return;
  served->settled = true;
  // Behind what runs now: the owner may commit, abort or begin in the callback.
  options_.work->Post([this, alive = alive_, shard = served->exchange->terms().shard] {
    if (!*alive) return;
    const auto found = served_.find(shard);
    if (found != served_.end() && found->second.settled) options_.on_settled(*found->second.exchange);
  });
}

// One piece to the partner whose turn it is. False: nothing can be sent now.
bool RoundCarrier::SendOne() {
  for (int pass = 0; pass < 2; ++pass) {
    for (auto& [shard, served] : served_) {
      for (uint32_t rank = 0; rank < served.names.size(); ++rank) {
        const bool after = std::make_pair(shard, rank) > std::make_pair(turn_shard_, turn_rank_);
        if (after != (pass == 0) || !served.exchange->HasSend(rank) || !streams_->Ready(served.names[rank])) continue;
        std::optional<OutgoingPiece> piece = served.exchange->NextSend(rank);
        Settle(&served);
        if (!piece) return true;  // it has failed meanwhile
        turn_shard_ = shard;
        turn_rank_ = rank;
        pacer_.OnPiece(options_.work->Now(), piece->payload->size());
        streams_->Send(served.names[rank], *std::move(piece));
        return true;
      }
    }
  }
  return false;
}

void RoundCarrier::Pump() {
  for (;;) {
    const MonoTime now = options_.work->Now();
    if (pacer_.NextSend() > now) {
      if (std::exchange(timer_set_, true)) return;
      options_.work->PostAfter(pacer_.NextSend() - now, [this, alive = alive_] {
        if (!*alive) return;
        timer_set_ = false;
        Pump();
      });
      return;
    }
    if (!SendOne()) return;
  }
}

}  // namespace stagecoach
