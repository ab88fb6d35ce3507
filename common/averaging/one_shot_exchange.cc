#include "common/averaging/one_shot_exchange.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

OneShotExchange::OneShotExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read,
                                 absl::Span<const float> residual, Memory memory)
    : PieceExchange(terms, rank, std::move(read), residual, std::move(memory)),
      collected_(Pieces(rank)),
      gathered_(terms.ranks()),
      next_part_(terms.ranks(), 0),
      sums_(terms.ranks()),
      own_(terms.piece_parameters),
      decoded_(terms.piece_parameters) {
  uint32_t others = 0;
  for (uint32_t from = 0; from < terms_.ranks(); ++from) {
    gathered_[from].assign(Pieces(from), false);
    others += from != rank_ && terms_.weights[from] != 0;
  }
  for (uint64_t index = 0; index < collected_.size(); ++index) {
    collected_[index].parts.resize(terms_.ranks());
    collected_[index].missing = others;
    if (others == 0) Add(index);
  }
}

PiecePayload OneShotExchange::OwnPart(const ParameterRange& piece) {
  const absl::Span<float> own(own_.data(), piece.count);
  Weighted(piece, own);
  PiecePayload part = Encoded(own);
  if (!residual_.empty()) {
    const absl::Span<float> decoded(decoded_.data(), piece.count);
    finite_ &= DecodeAveraging(terms_.codec, *part, decoded);
    for (size_t i = 0; i < piece.count; ++i) new_residual_[piece.first + i] = own[i] - decoded[i];
  }
  return part;
}

void OneShotExchange::Add(uint64_t index) {
  const ParameterRange piece = PieceAt(rank_, index);
  const absl::Span<float> sum(sum_.data() + piece.first, piece.count);
  if (terms_.ranks() == 1) {  // nobody to agree with: exact
    Weighted(piece, sum);
    Complete(piece);
    return;
  }
  std::vector<std::vector<uint8_t>>& parts = collected_[index].parts;
  PiecePayload own;
  if (terms_.weights[rank_] != 0) own = OwnPart(piece);
  std::fill(sum.begin(), sum.end(), 0.0f);
  const absl::Span<float> decoded(decoded_.data(), piece.count);
  bool first = true;
  for (uint32_t from = 0; from < terms_.ranks(); ++from) {
    if (terms_.weights[from] == 0) continue;
    finite_ &= DecodeAveraging(terms_.codec, from == rank_ ? *own : parts[from], first ? sum : decoded);
    if (!first) {
      for (size_t i = 0; i < piece.count; ++i) sum[i] += decoded[i];
    }
    first = false;
  }
  parts.clear();
  parts.shrink_to_fit();
  const PiecePayload payload = Encoded(sum);
  finite_ &= DecodeAveraging(terms_.codec, *payload, decoded);
  if (!residual_.empty()) {
    for (size_t i = 0; i < piece.count; ++i) new_residual_[piece.first + i] += sum[i] - decoded[i];
  }
  std::copy(decoded.begin(), decoded.end(), sum.begin());
  Complete(piece);
  for (uint32_t to = 0; to < terms_.ranks(); ++to) {
    if (to != rank_) sums_[to].push_back({HeaderOf(PiecePhase::kGather, rank_, index), payload});
  }
}

PieceVerdict OneShotExchange::OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) {
  uint64_t index = 0;
  if (from >= terms_.ranks() || from == rank_ || !Locate(header, payload.size(), &index)) {
    return PieceVerdict::kMalformed;
  }
  if (header.phase == PiecePhase::kReduce) {
    if (header.chunk != rank_ || terms_.weights[from] == 0) return PieceVerdict::kMalformed;
    return Collect(from, index, payload);
  }
  if (header.phase != PiecePhase::kGather || header.chunk != from) return PieceVerdict::kMalformed;
  if (gathered_[from][index]) return PieceVerdict::kDuplicate;
  const ParameterRange piece = PieceAt(from, index);
  if (!DecodeAveraging(terms_.codec, payload, absl::MakeSpan(sum_).subspan(piece.first, piece.count))) {
    return PieceVerdict::kNonFinite;
  }
  gathered_[from][index] = true;
  Complete(piece);
  return PieceVerdict::kStored;
}

PieceVerdict OneShotExchange::Collect(uint32_t from, uint64_t index, absl::Span<const uint8_t> payload) {
  Collected& collected = collected_[index];
  if (collected.missing == 0 || !collected.parts[from].empty()) return PieceVerdict::kDuplicate;
  if (!DecodeAveraging(terms_.codec, payload, absl::MakeSpan(decoded_).first(PieceAt(rank_, index).count))) {
    return PieceVerdict::kNonFinite;
  }
  collected.parts[from].assign(payload.begin(), payload.end());
  if (--collected.missing == 0) Add(index);
  return PieceVerdict::kStored;
}

bool OneShotExchange::HasSend(uint32_t to) const {
  if (to == rank_) return false;
  return (terms_.weights[rank_] != 0 && next_part_[to] < Pieces(to)) || !sums_[to].empty();
}

std::optional<OutgoingPiece> OneShotExchange::NextSend(uint32_t to) {
  if (!HasSend(to)) return std::nullopt;
  // Parts first: others wait for them before they can send anything back.
  if (terms_.weights[rank_] != 0 && next_part_[to] < Pieces(to)) {
    const uint64_t index = next_part_[to]++;
    return OutgoingPiece{HeaderOf(PiecePhase::kReduce, to, index), OwnPart(PieceAt(to, index))};
  }
  OutgoingPiece piece = std::move(sums_[to].front());
  sums_[to].pop_front();
  return piece;
}

}  // namespace stagecoach
