#include "common/averaging/ring_exchange.h"

#include <utility>

namespace stagecoach {

RingExchange::RingExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read, Memory memory)
    : PieceExchange(terms, rank, std::move(read), {}, std::move(memory)),
      next_((rank + 1) % terms.ranks()),
      added_(terms.ranks()),
      taken_(terms.ranks()),
      own_(terms.piece_parameters),
      partial_(terms.piece_parameters) {
  for (uint32_t chunk = 0; chunk < terms_.ranks(); ++chunk) {
    added_[chunk].assign(Pieces(chunk), false);
    taken_[chunk].assign(Pieces(chunk), false);
  }
}

PieceVerdict RingExchange::OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) {
  uint64_t index = 0;
  if ((from + 1) % terms_.ranks() != rank_ || !Locate(header, payload.size(), &index)) return PieceVerdict::kMalformed;
  if (header.phase == PiecePhase::kReduce) return Add(header.chunk, index, payload);
  if (header.phase == PiecePhase::kGather) return Take(header.chunk, index, payload);
  return PieceVerdict::kMalformed;
}

PieceVerdict RingExchange::Add(uint32_t chunk, uint64_t index, absl::Span<const uint8_t> payload) {
  if (Step(chunk) == 0) return PieceVerdict::kMalformed;  // we started it
  if (added_[chunk][index]) return PieceVerdict::kDuplicate;
  const ParameterRange piece = PieceAt(chunk, index);
  const absl::Span<float> partial(partial_.data(), piece.count);
  if (!DecodeAveraging(terms_.codec, payload, partial)) return PieceVerdict::kNonFinite;
  added_[chunk][index] = true;
  if (terms_.weights[rank_] != 0) {
    const absl::Span<float> own(own_.data(), piece.count);
    Weighted(piece, own);
    for (size_t i = 0; i < piece.count; ++i) partial[i] += own[i];
  }
  const bool ends_here = Step(chunk) == terms_.ranks() - 1;
  PiecePayload sum = Encoded(partial);
  if (ends_here) {
    finite_ &= DecodeAveraging(terms_.codec, *sum, absl::MakeSpan(sum_).subspan(piece.first, piece.count));
    taken_[chunk][index] = true;
    Complete(piece);
  }
  forward_.push_back({HeaderOf(ends_here ? PiecePhase::kGather : PiecePhase::kReduce, chunk, index), std::move(sum)});
  return PieceVerdict::kStored;
}

PieceVerdict RingExchange::Take(uint32_t chunk, uint64_t index, absl::Span<const uint8_t> payload) {
  if (Step(chunk) == terms_.ranks() - 1) return PieceVerdict::kMalformed;  // we ended it
  if (taken_[chunk][index]) return PieceVerdict::kDuplicate;
  const ParameterRange piece = PieceAt(chunk, index);
  if (!DecodeAveraging(terms_.codec, payload, absl::MakeSpan(sum_).subspan(piece.first, piece.count))) {
    return PieceVerdict::kNonFinite;
  }
  taken_[chunk][index] = true;
  Complete(piece);
  if (Step(chunk) != terms_.ranks() - 2) {
    forward_.push_back({HeaderOf(PiecePhase::kGather, chunk, index),
                        std::make_shared<std::vector<uint8_t>>(payload.begin(), payload.end())});
  }
  return PieceVerdict::kStored;
}

bool RingExchange::HasSend(uint32_t to) const {
  return to == next_ && (next_part_ < Pieces(rank_) || !forward_.empty());
}

std::optional<OutgoingPiece> RingExchange::NextSend(uint32_t to) {
  if (!HasSend(to)) return std::nullopt;
  if (next_part_ < Pieces(rank_)) {
    const uint64_t index = next_part_++;
    const ParameterRange piece = PieceAt(rank_, index);
    const absl::Span<float> own(own_.data(), piece.count);
    Weighted(piece, own);
    return OutgoingPiece{HeaderOf(PiecePhase::kReduce, rank_, index), Encoded(own)};
  }
  OutgoingPiece piece = std::move(forward_.front());
  forward_.pop_front();
  return piece;
}

}  // namespace stagecoach
