// The exchange of one vector between C ranks in pieces: what arrives, what is to be sent, the weighted sum piece by
// piece. Three methods behind one interface: direct, one-shot and ring (exchange_plan.h has their costs).
//
// Pieces are pulled, not pushed: NextSend encodes when the link asks, so that nothing but what must wait is held.
// Bounds: every piece is accepted once; a rank holds at most (C-1) encoded copies of its chunk (direct: C of the
// shard), and the sums on their way to others.
//
// Threading: one thread at a time. Arithmetic: fp32, by ascending rank (direct, one-shot) or in ring order; never by
// arrival.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/averaging/exchange_terms.h"

namespace stagecoach {

// Parameters first .. first + out.size() - 1 of this rank's contribution, before its weight. Always the same values.
using ReadContribution = std::function<void(uint64_t first, absl::Span<float> out)>;

using PiecePayload = std::shared_ptr<const std::vector<uint8_t>>;

struct OutgoingPiece {
  PieceHeader header;
  PiecePayload payload;
};

enum class PieceVerdict : uint8_t {
  kStored,
  kEarly,      // of an attempt that we do not know yet: keep it and offer it again
  kStale,      // of an earlier round, attempt or plan: dropped
  kDuplicate,  // dropped
  kMalformed,  // not a piece of this exchange, or not from this rank: the sender is at fault
  kNonFinite,  // a value is not finite: the sender is at fault
};

class PieceExchange {
 public:
  // What the results are written to; of any size.
  struct Memory {
    std::vector<float> sum, new_residual;
  };
  // `residual`: empty, or what earlier rounds lost. It outlives the exchange.
  static std::unique_ptr<PieceExchange> Make(const ExchangeTerms& terms, uint32_t rank, ReadContribution read,
                                             absl::Span<const float> residual, Memory memory);
  virtual ~PieceExchange() = default;

  // Round, attempt, shard and epoch have been compared already.
  virtual PieceVerdict OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload) = 0;
  virtual bool HasSend(uint32_t to) const = 0;
  virtual std::optional<OutgoingPiece> NextSend(uint32_t to) = 0;

  bool complete() const { return missing_ == 0; }
  // What of sum() has become final since the last call. The caller may change these values: they are not read again.
  std::vector<ParameterRange> TakeFinal() { return std::exchange(final_, {}); }
  // False: our own contribution, or a sum, is not finite. The exchange cannot complete.
  bool finite() const { return finite_; }
  std::vector<float>& sum() { return sum_; }
  std::vector<float>& new_residual() { return new_residual_; }  // with error feedback, when complete

 protected:
  PieceExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read, absl::Span<const float> residual,
                Memory memory);

  uint64_t Pieces(uint32_t chunk) const;
  ParameterRange PieceAt(uint32_t chunk, uint64_t index) const;
  // The piece that `header` names; false: there is none, or it has another size.
  bool Locate(const PieceHeader& header, size_t bytes, uint64_t* index) const;
  PieceHeader HeaderOf(PiecePhase phase, uint32_t chunk, uint64_t index) const;
  // Weighted contribution (with its residual) of a piece.
  void Weighted(const ParameterRange& piece, absl::Span<float> out) const;
  PiecePayload Encoded(absl::Span<const float> values);
  // A piece of the sum is final.
  void Complete(const ParameterRange& piece) {
    --missing_;
    final_.push_back(piece);
  }

  const ExchangeTerms terms_;
  const uint32_t rank_;
  std::vector<float> sum_;
  const absl::Span<const float> residual_;  // before this round
  std::vector<float> new_residual_;
  bool finite_ = true;

 private:
  const ReadContribution read_;
  uint64_t missing_ = 0;  // pieces of the sum
  std::vector<ParameterRange> final_;
};

}  // namespace stagecoach
