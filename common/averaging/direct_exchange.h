// Every rank sends Q(w_i x_i) of the whole shard to every other one; all add dequant(Q(w_i x_i)), their own part too,
// by ascending rank. So all ranks end with the same bits, after one rounding and one delay. For two owners it costs the
// bytes of a one-shot exchange.
//
// Error feedback: what a rank's rounding lost is kept per parameter. Memory: one encoded copy of what this rank has
// sent and not yet added, and of what others have sent and it cannot add yet.
//
// Threading: see piece_exchange.h.
#pragma once

#include <optional>
#include <vector>

#include "common/averaging/piece_exchange.h"

namespace stagecoach {

class DirectExchange final : public PieceExchange {
 public:
  DirectExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read, absl::Span<const float> residual,
                 Memory memory);
  PieceVerdict OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) override;
  bool HasSend(uint32_t to) const override;
  std::optional<OutgoingPiece> NextSend(uint32_t to) override;

 private:
  struct Piece {
    uint32_t chunk = 0;
    uint64_t index = 0;                       // in the chunk
    std::vector<std::vector<uint8_t>> parts;  // of others, by rank; the last one to come is added without being kept
    std::vector<bool> arrived;                // by rank
    uint32_t missing = 0;                     // parts of others
    PiecePayload own;                         // from its first use to its last one
    uint32_t uses_left = 0;                   // of `own`: a send to each other rank, and the sum
  };
  PiecePayload OwnPart(Piece* piece);
  // The sum of a piece whose last part is from rank `last`, in last_ (nobody: our own rank).
  void Add(Piece* piece, uint32_t last);

  std::vector<Piece> pieces_;          // of the shard, in order
  std::vector<uint64_t> chunk_begin_;  // in pieces_
  std::vector<uint64_t> next_send_;    // to each rank
  std::vector<float> values_, last_;   // scratch
};

}  // namespace stagecoach
