#include "common/averaging/piece_exchange.h"

#include <algorithm>
#include <utility>

#include "common/averaging/direct_exchange.h"
#include "common/averaging/one_shot_exchange.h"
#include "common/averaging/ring_exchange.h"

namespace stagecoach {

std::unique_ptr<PieceExchange> PieceExchange::Make(const ExchangeTerms& terms, uint32_t rank, ReadContribution read,
                                                   absl::Span<const float> residual, Memory memory) {
  if (terms.method == ExchangeMethod::kRing && terms.ranks() > 1) {
    return std::make_unique<RingExchange>(terms, rank, std::move(read), std::move(memory));
  }
  if (terms.method == ExchangeMethod::kDirect && terms.ranks() > 1) {
    return std::make_unique<DirectExchange>(terms, rank, std::move(read), residual, std::move(memory));
  }
  return std::make_unique<OneShotExchange>(terms, rank, std::move(read), residual, std::move(memory));
}

PieceExchange::PieceExchange(const ExchangeTerms& terms, uint32_t rank, ReadContribution read,
                             absl::Span<const float> residual, Memory memory)
    : terms_(terms),
      rank_(rank),
      sum_(std::move(memory.sum)),
      residual_(residual),
      new_residual_(std::move(memory.new_residual)),
      read_(std::move(read)) {
  sum_.resize(terms_.parameters);
  // Each rank encodes, and so writes the new residual of, every parameter; who only receives keeps the old one.
  new_residual_.resize(residual_.size());
  if (terms_.weights[rank_] == 0) std::copy(residual_.begin(), residual_.end(), new_residual_.begin());
  for (uint32_t chunk = 0; chunk < terms_.ranks(); ++chunk) missing_ += Pieces(chunk);
}

uint64_t PieceExchange::Pieces(uint32_t chunk) const {
  return (terms_.chunks[chunk].count + terms_.piece_parameters - 1) / terms_.piece_parameters;
}

ParameterRange PieceExchange::PieceAt(uint32_t chunk, uint64_t index) const {
  const ParameterRange& range = terms_.chunks[chunk];
  const uint64_t offset = index * terms_.piece_parameters;
  return {range.first + offset, std::min(terms_.piece_parameters, range.count - offset)};
}

bool PieceExchange::Locate(const PieceHeader& header, size_t bytes, uint64_t* index) const {
  if (header.chunk >= terms_.ranks()) return false;
  const ParameterRange& range = terms_.chunks[header.chunk];
  if (header.first < range.first || header.first >= range.first + range.count) return false;
  const uint64_t offset = header.first - range.first;
  if (offset % terms_.piece_parameters != 0) return false;
  *index = offset / terms_.piece_parameters;
  return bytes == AveragingBytes(terms_.codec, PieceAt(header.chunk, *index).count);
}

PieceHeader PieceExchange::HeaderOf(PiecePhase phase, uint32_t chunk, uint64_t index) const {
  return {terms_.round, terms_.attempt, terms_.shard, terms_.epochs[rank_], phase, chunk, PieceAt(chunk, index).first};
}

void PieceExchange::Weighted(const ParameterRange& piece, absl::Span<float> out) const {
  const float weight = terms_.weights[rank_];
  if (weight == 0) {  // also if the contribution is not finite
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  read_(piece.first, out);
  if (weight != 1.0f) {
    for (float& value : out) value *= weight;
  }
  if (residual_.empty()) return;
  for (size_t i = 0; i < out.size(); ++i) out[i] += residual_[piece.first + i];
}

PiecePayload PieceExchange::Encoded(absl::Span<const float> values) {
  auto payload = std::make_shared<std::vector<uint8_t>>(AveragingBytes(terms_.codec, values.size()));
  finite_ &= EncodeAveraging(terms_.codec, values, absl::MakeSpan(*payload));
  return payload;
}

}  // namespace stagecoach
