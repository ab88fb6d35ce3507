// How C owners exchange one shard of S parameters: which method, which rank owns which chunk, what it costs.
//
//   direct   every rank sends Q(w_i x_i) of the whole shard to every other one, all add.
//       T = l + (C-1) * bytes / rate                  one rounding; (C-1) * bytes sent by a worker
//   one-shot reduce-scatter + all-gather   rank i sends Q(w_i x_i[q_j]) to rank j; rank j sends Q(sum) to all.
//       T = 2 l + 2 (C-1)/C * bytes / rate            exactly two roundings for any C
//   ring   C chunks travel round the ring, summed on the way, then once more complete.
//       T = 2 (C-1) * max(chunk / rate, l + piece / rate)       C-1 roundings: not below bf16
// Bytes sent by a worker in the last two: 2 (C-1)/C * bytes (equal chunks). With two owners direct is never worse: the
// same bytes, one delay and one rounding less.
//
// Threading: pure functions. Chunks are whole groups of 64 parameters (the last one may be short), so that no codec
// group is cut. Errors: INVALID_ARGUMENT.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/averaging/averaging_codec.h"

namespace stagecoach {

enum class ExchangeMethod : uint8_t { kOneShot = 1, kRing = 2, kDirect = 3 };

struct ParameterRange {
  uint64_t first = 0, count = 0;
};

// Share of the shard that each rank owns in a one-shot exchange. Rank i sends S(1 + (C-2) x_i): shares minimise
// max_i S(1 + (C-2) x_i) / rate_i. Equal if a rate is unknown (0), or for C <= 2.
std::vector<double> ChunkShares(absl::Span<const double> uplink_bytes_per_second);

// Chunk of each rank: contiguous, in rank order, together [0, parameters).
std::vector<ParameterRange> ChunksByShare(uint64_t parameters, absl::Span<const double> shares);
std::vector<ParameterRange> EqualChunks(uint64_t parameters, uint32_t ranks);

struct ExchangeLink {
  double bytes_per_second = 0;  // slowest uplink of the owners
  double delay_seconds = 0;     // largest one-way delay between two of them
  double piece_bytes = 65536;   // what is forwarded as a whole
};
double DirectSeconds(uint32_t ranks, double shard_bytes, const ExchangeLink& link);
double OneShotSeconds(uint32_t ranks, double shard_bytes, const ExchangeLink& link);
double RingSeconds(uint32_t ranks, double shard_bytes, const ExchangeLink& link);

// Two owners: direct. More: integers go one-shot; fp32 and bf16 take the ring for more than 8 owners, else the cheaper
// of both.
ExchangeMethod ChooseExchange(AveragingCodec codec, uint32_t ranks, uint64_t parameters, const ExchangeLink& link);

// Payload bytes that `rank` sends in one exchange, pieces of at most piece_parameters.
uint64_t BytesSent(ExchangeMethod method, AveragingCodec codec, absl::Span<const ParameterRange> chunks, uint32_t rank,
                   uint64_t piece_parameters);

// Parameters in a piece of at most `piece_bytes`: whole groups, at least one.
uint64_t PieceParameters(AveragingCodec codec, size_t piece_bytes);

// Order of the ranks in a ring: a short tour by `seconds` (row-major, ranks x ranks, the time of one piece from row to
// column). Begins with rank 0; nearest neighbour, then 2-opt; deterministic.
std::vector<uint32_t> RingOrder(uint32_t ranks, absl::Span<const double> seconds);

}  // namespace stagecoach
