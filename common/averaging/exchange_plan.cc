#include "common/averaging/exchange_plan.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

constexpr uint32_t kManyOwners = 8;  // above, a ring saves C-1 connections a worker (04 section 4)

uint64_t Groups(uint64_t parameters) { return (parameters + kAveragingGroup - 1) / kAveragingGroup; }

double TourSeconds(absl::Span<const double> seconds, const std::vector<uint32_t>& order) {
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    total += seconds[order[i] * order.size() + order[(i + 1) % order.size()]];
  }
  return total;
}

uint64_t PieceBytesOf(AveragingCodec codec, uint64_t parameters, uint64_t piece_parameters) {
  const uint64_t whole = parameters / piece_parameters, rest = parameters % piece_parameters;
  return whole * AveragingBytes(codec, piece_parameters) + AveragingBytes(codec, rest);
}

}  // namespace

std::vector<double> ChunkShares(absl::Span<const double> rates) {
  const size_t ranks = rates.size();
  std::vector<double> shares(ranks, ranks == 0 ? 0 : 1.0 / static_cast<double>(ranks));
  if (ranks <= 2 || *std::min_element(rates.begin(), rates.end()) <= 0) return shares;
  // With S = 1: caps x_i(T) = (T rate_i - 1)/(C-2); their sum reaches 1 at T = 2 (C-1) / sum of rates, and none is
  // negative from T = 1 / min rate on.
  double sum = 0;
  for (const double rate : rates) sum += rate;
  const double c = static_cast<double>(ranks);
  const double t = std::max(1.0 / *std::min_element(rates.begin(), rates.end()), 2 * (c - 1) / sum);
  double caps = 0;
  for (size_t i = 0; i < ranks; ++i) {
    shares[i] = std::max(0.0, (t * rates[i] - 1) / (c - 2));
    caps += shares[i];
  }
  for (double& share : shares) share /= caps;
  return shares;
}

std::vector<ParameterRange> ChunksByShare(uint64_t parameters, absl::Span<const double> shares) {
  const uint64_t groups = Groups(parameters);
  std::vector<ParameterRange> chunks;
  double cumulative = 0;
  uint64_t first = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    cumulative += shares[i];
    const double end_group = std::round(cumulative * static_cast<double>(groups));
    uint64_t end = std::min(parameters, static_cast<uint64_t>(std::max(0.0, end_group)) * kAveragingGroup);
    if (i + 1 == shares.size()) end = parameters;
    end = std::max(end, first);
    chunks.push_back({first, end - first});
    first = end;
  }
  return chunks;
}

std::vector<ParameterRange> EqualChunks(uint64_t parameters, uint32_t ranks) {
  const uint64_t groups = Groups(parameters);
  std::vector<ParameterRange> chunks;
  for (uint64_t i = 0; i < ranks; ++i) {
    const uint64_t first = std::min(parameters, groups * i / ranks * kAveragingGroup);
    const uint64_t end = std::min(parameters, groups * (i + 1) / ranks * kAveragingGroup);
    chunks.push_back({first, end - first});
  }
  return chunks;
}

double DirectSeconds(uint32_t ranks, double shard_bytes, const ExchangeLink& link) {
  if (ranks <= 1) return 0;
  return link.delay_seconds + (ranks - 1) * shard_bytes / link.bytes_per_second;
}

double OneShotSeconds(uint32_t ranks, double shard_bytes, const ExchangeLink& link) {
  if (ranks <= 1) return 0;
  const double c = ranks;
  return 2 * link.delay_seconds + 2 * (c - 1) / c * shard_bytes / link.bytes_per_second;
}

double RingSeconds(uint32_t ranks, double shard_bytes, const ExchangeLink& link) {
  if (ranks <= 1) return 0;
  const double c = ranks;
  return 2 * (c - 1) *
         std::max(shard_bytes / c / link.bytes_per_second,
                  link.delay_seconds + link.piece_bytes / link.bytes_per_second);
}

ExchangeMethod ChooseExchange(AveragingCodec codec, uint32_t ranks, uint64_t parameters, const ExchangeLink& link) {
  if (ranks == 2) return ExchangeMethod::kDirect;
  if (codec == AveragingCodec::kInt8 || codec == AveragingCodec::kInt4) return ExchangeMethod::kOneShot;
  if (ranks > kManyOwners) return ExchangeMethod::kRing;
  if (link.bytes_per_second <= 0) return ExchangeMethod::kOneShot;
  const double bytes = static_cast<double>(parameters) * AveragingBits(codec) / 8;
  return RingSeconds(ranks, bytes, link) < OneShotSeconds(ranks, bytes, link) ? ExchangeMethod::kRing
                                                                              : ExchangeMethod::kOneShot;
}

uint64_t BytesSent(ExchangeMethod method, AveragingCodec codec, absl::Span<const ParameterRange> chunks, uint32_t rank,
                   uint64_t piece_parameters) {
  const size_t ranks = chunks.size();
  if (ranks <= 1) return 0;
  uint64_t bytes = 0;
  for (size_t q = 0; q < ranks; ++q) {
    const uint64_t chunk = PieceBytesOf(codec, chunks[q].count, piece_parameters);
    if (method == ExchangeMethod::kDirect) {
      bytes += chunk * (ranks - 1);
    } else if (method == ExchangeMethod::kOneShot) {
      bytes += q == rank ? chunk * (ranks - 1) : chunk;
    } else {
      // Rank q-1 ends the sums of chunk q and does not pass them on; rank q-2 is the last to receive it complete.
      bytes += (q == (rank + 1) % ranks ? 0 : chunk) + (q == (rank + 2) % ranks ? 0 : chunk);
    }
  }
  return bytes;
}

uint64_t PieceParameters(AveragingCodec codec, size_t piece_bytes) {
  const uint64_t groups = piece_bytes / AveragingBytes(codec, kAveragingGroup);
  return std::max<uint64_t>(1, groups) * kAveragingGroup;
}

std::vector<uint32_t> RingOrder(uint32_t ranks, absl::Span<const double> seconds) {
  std::vector<uint32_t> order;
  std::vector<bool> used(ranks, false);
  for (uint32_t i = 0; i < ranks; ++i) {
    uint32_t best = 0;
    if (i > 0) {
      const uint32_t from = order.back();
      best = ranks;
      for (uint32_t to = 0; to < ranks; ++to) {
        if (used[to]) continue;
        if (best == ranks || seconds[from * ranks + to] < seconds[from * ranks + best]) best = to;
      }
    }
    used[best] = true;
    order.push_back(best);
  }
  bool improved = ranks > 3;
  for (uint32_t pass = 0; improved && pass < ranks; ++pass) {
    improved = false;
    double best = TourSeconds(seconds, order);
    for (uint32_t i = 1; i + 1 < ranks; ++i) {
      for (uint32_t j = i + 1; j < ranks; ++j) {
        std::reverse(order.begin() + i, order.begin() + j + 1);
        const double now = TourSeconds(seconds, order);
        if (now < best) {
          best = now;
          improved = true;
        } else {
          std::reverse(order.begin() + i, order.begin() + j + 1);
        }
      }
    }
  }
  return order;
}

}  // namespace stagecoach
