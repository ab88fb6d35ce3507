// Ring of C ranks, C chunks: chunk q starts at rank q, every rank adds its own part and passes it on, rank q-1 ends the
// sum and sends it once more round. Additions of chunk q in the order q, q+1, ...: fixed by the ring. Pieces are passed
// on as they arrive.
//
// Threading: see piece_exchange.h.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "common/averaging/piece_exchange.h"

namespace stagecoach {

class RingExchange final : public PieceExchange {
 public:
  RingExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read, Memory memory);
  PieceVerdict OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) override;
  bool HasSend(uint32_t to) const override;
  std::optional<OutgoingPiece> NextSend(uint32_t to) override;

 private:
  uint32_t Step(uint32_t chunk) const { return (rank_ + terms_.ranks() - chunk) % terms_.ranks(); }
  PieceVerdict Add(uint32_t chunk, uint64_t index, absl::Span<const uint8_t> payload);
  PieceVerdict Take(uint32_t chunk, uint64_t index, absl::Span<const uint8_t> payload);

  const uint32_t next_;
  std::vector<std::vector<bool>> added_, taken_;  // chunk, piece
  uint64_t next_part_ = 0;                        // of our own chunk, which we start
  std::deque<OutgoingPiece> forward_;
  std::vector<float> own_, partial_;  // scratch
};

}  // namespace stagecoach
