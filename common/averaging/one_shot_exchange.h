// One-shot reduce-scatter + all-gather: rank i sends Q(w_i x_i[q_j]) to rank j; rank j adds by ascending rank, sends
// Q(sum) to all and keeps dequant(Q(sum)) itself, its own part having gone through Q too. So all ranks end with the
// same bits, and the result does not depend on who owns a chunk.
//
// Error feedback: what a rank's rounding lost is kept per parameter, and what rounding the sum lost is added to the
// residual of the chunk's owner: over rounds nothing is lost.
//
// Threading: see piece_exchange.h.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "common/averaging/piece_exchange.h"

namespace stagecoach {

class OneShotExchange final : public PieceExchange {
 public:
  OneShotExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read, absl::Span<const float> residual,
                  Memory memory);
  PieceVerdict OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) override;
  bool HasSend(uint32_t to) const override;
  std::optional<OutgoingPiece> NextSend(uint32_t to) override;

 private:
  // A piece of our own chunk: the parts that have arrived, by rank.
  struct Collected {
    std::vector<std::vector<uint8_t>> parts;
    uint32_t missing = 0;
  };
  PieceVerdict Collect(uint32_t from, uint64_t index, absl::Span<const uint8_t> payload);
  void Add(uint64_t index);
  // Encodes our own part of a piece, and keeps what rounding lost.
  PiecePayload OwnPart(const ParameterRange& piece);

  std::vector<Collected> collected_;
  std::vector<std::vector<bool>> gathered_;      // chunk, piece
  std::vector<uint64_t> next_part_;              // of the chunk of each rank: the next piece to send there
  std::vector<std::deque<OutgoingPiece>> sums_;  // to each rank
  std::vector<float> own_, decoded_;             // scratch
};

}  // namespace stagecoach
