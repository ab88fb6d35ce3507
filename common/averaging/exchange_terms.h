// What the coordinator fixes about one attempt at averaging one shard, and the header of a piece on the wire. All
// owners of the shard hold the same terms.
//
// Threading: values. Errors: INVALID_ARGUMENT (CheckTerms).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/averaging/averaging_codec.h"
#include "common/averaging/exchange_plan.h"
#include "common/averaging/outer_optimizer.h"

namespace stagecoach {

struct ExchangeTerms {
  uint64_t round = 0;
  uint32_t attempt = 0;
  uint32_t shard = 0;
  uint64_t parameters = 0;
  ExchangeMethod method = ExchangeMethod::kOneShot;
  AveragingCodec codec = AveragingCodec::kInt8;
  bool error_feedback = false;  // not in a ring: what rounding lost is added to the next round's contribution
  OuterOptimizer outer;
  std::vector<float> weights;          // of each rank, summing to 1; 0: receives only. Ranks: ascending cluster id, or
                                       // the order of the ring
  std::vector<uint64_t> epochs;        // of each rank's cluster: pieces of another plan are dropped
  std::vector<ParameterRange> chunks;  // of each rank
  uint64_t piece_parameters = 0;       // most parameters of one piece; whole groups of 64

  uint32_t ranks() const { return static_cast<uint32_t>(weights.size()); }
  // Exchanged as weights, not as differences: see outer_optimizer.h.
  bool OfWeights() const { return outer.kind == OuterOptimizer::Kind::kPlainMean && codec == AveragingCodec::kFp32; }
};

absl::Status CheckTerms(const ExchangeTerms& terms);

enum class PiecePhase : uint8_t { kReduce = 1, kGather = 2 };

// Pieces: the chunk cut every piece_parameters. `first` counts parameters from the beginning of the shard.
struct PieceHeader {
  uint64_t round = 0;
  uint32_t attempt = 0;
  uint32_t shard = 0;
  uint64_t epoch = 0;  // of the sender's cluster
  PiecePhase phase = PiecePhase::kReduce;
  uint32_t chunk = 0;
  uint64_t first = 0;
};

}  // namespace stagecoach
