#include "common/averaging/direct_exchange.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

DirectExchange::DirectExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read,
                               absl::Span<const float> residual, Memory memory)
    : PieceExchange(terms, rank, std::move(read), residual, std::move(memory)),
      next_send_(terms.ranks(), 0),
      values_(terms.piece_parameters),
      last_(terms.piece_parameters) {
  uint32_t others = 0;
  for (uint32_t from = 0; from < terms_.ranks(); ++from) others += from != rank_ && terms_.weights[from] != 0;
  for (uint32_t chunk = 0; chunk < terms_.ranks(); ++chunk) {
    chunk_begin_.push_back(pieces_.size());
    for (uint64_t index = 0; index < Pieces(chunk); ++index) {
      Piece& piece = pieces_.emplace_back();
      piece.chunk = chunk;
      piece.index = index;
      piece.parts.resize(terms_.ranks());
      piece.arrived.assign(terms_.ranks(), false);
      piece.missing = others;
      piece.uses_left = terms_.ranks();
    }
  }
  if (others > 0) return;
  for (Piece& piece : pieces_) Add(&piece, rank_);
}

PiecePayload DirectExchange::OwnPart(Piece* piece) {
  if (piece->own == nullptr) {
    const ParameterRange range = PieceAt(piece->chunk, piece->index);
    const absl::Span<float> own(values_.data(), range.count);
    Weighted(range, own);
    piece->own = Encoded(own);
    if (!residual_.empty()) {
      const absl::Span<float> kept(new_residual_.data() + range.first, range.count);
      finite_ &= DecodeAveraging(terms_.codec, *piece->own, kept);
      for (size_t i = 0; i < range.count; ++i) kept[i] = own[i] - kept[i];
    }
  }
  PiecePayload own = piece->own;
  if (--piece->uses_left == 0) piece->own = nullptr;
  return own;
}

void DirectExchange::Add(Piece* piece, uint32_t last) {
  const ParameterRange range = PieceAt(piece->chunk, piece->index);
  const absl::Span<float> sum(sum_.data() + range.first, range.count), values(values_.data(), range.count);
  PiecePayload own;
  if (terms_.weights[rank_] != 0) own = OwnPart(piece);
  bool first = true;
  for (uint32_t from = 0; from < terms_.ranks(); ++from) {
    if (terms_.weights[from] == 0) continue;
    absl::Span<const float> part = values;
    if (from == last && from != rank_) {
      part = absl::MakeConstSpan(last_).first(range.count);
    } else {
      finite_ &= DecodeAveraging(terms_.codec, from == rank_ ? *own : piece->parts[from], values);
    }
    if (first) {
      std::copy(part.begin(), part.end(), sum.begin());
    } else {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    first = false;
  }
  piece->parts = {};
  Complete(range);
}

PieceVerdict DirectExchange::OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) {
  uint64_t index = 0;
  if (from >= terms_.ranks() || from == rank_ || terms_.weights[from] == 0 || header.phase != PiecePhase::kReduce ||
      !Locate(header, payload.size(), &index)) {
    return PieceVerdict::kMalformed;
  }
  Piece& piece = pieces_[chunk_begin_[header.chunk] + index];
  if (piece.arrived[from]) return PieceVerdict::kDuplicate;
  if (!DecodeAveraging(terms_.codec, payload, absl::MakeSpan(last_).first(PieceAt(header.chunk, index).count))) {
    return PieceVerdict::kNonFinite;
  }
  piece.arrived[from] = true;
  if (--piece.missing == 0) {
    Add(&piece, from);
  } else {
    piece.parts[from].assign(payload.begin(), payload.end());
  }
  return PieceVerdict::kStored;
}

bool DirectExchange::HasSend(uint32_t to) const {
  return to != rank_ && terms_.weights[rank_] != 0 && next_send_[to] < pieces_.size();
}

std::optional<OutgoingPiece> DirectExchange::NextSend(uint32_t to) {
  if (!HasSend(to)) return std::nullopt;
  Piece& piece = pieces_[next_send_[to]++];
  return OutgoingPiece{HeaderOf(PiecePhase::kReduce, piece.chunk, piece.index), OwnPart(&piece)};
}

}  // namespace stagecoach
