// Sizes of a model's units from its shape alone: parameters, activations, arithmetic. The worker's probe reports the
// same numbers of what it built; plans of fleets that are only written down use these.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach {

// Numbers of the rows of a throughput matrix: units of one kind cost the same.
enum class UnitKind : uint32_t { kEmbedding = 0, kBlock = 1, kTailBlock = 2, kHead = 3 };
constexpr uint32_t kNumUnitKinds = 4;

struct ModelShape {
  bool gpt2 = false;      // biases, learned positions, no gate
  bool pre_norm = false;  // each sub-layer has a norm with a gain
  uint64_t width = 0, layers = 0, heads = 0, kv_heads = 0, feedforward = 0, vocabulary = 0, max_tokens = 0;
  uint64_t rank = 0;         // of the subspace; 0: dense
  uint64_t tail_layers = 0;  // blocks at the end that write all of the width

  uint32_t num_units() const { return static_cast<uint32_t>(layers) + 2; }
  uint64_t boundary_columns() const { return rank > 0 ? rank : width; }
  UnitKind KindOf(uint32_t unit) const;
  // A cut may lie in front of this unit: behind a constrained block, or behind any block of a dense model.
  bool CutAllowed(uint32_t unit) const { return unit >= 2 && unit <= (rank > 0 ? layers - tail_layers : layers) + 1; }
};

uint64_t UnitParameters(const ModelShape& shape, UnitKind kind);

// What the backward pass of one microbatch needs of the unit, in fp32: an estimate.
uint64_t UnitActivationBytes(const ModelShape& shape, UnitKind kind, uint64_t sequences, uint64_t sequence_tokens);

// Multiplications and additions of the matrix products of one token's forward pass, attention over the whole sequence
// included: 2 a weight, 4 T d for attention, 2 k d for each expansion of coordinates to the width.
double ForwardFlopsPerToken(const ModelShape& shape, UnitKind kind, uint64_t sequence_tokens);

// Of one update by Muon: five Newton-Schulz iterations of 4 r^2 c + 2 r^3 for each r x c matrix of a block, r <= c.
// Element-wise optimizers do nothing that counts.
double MuonFlops(const ModelShape& shape, UnitKind kind);

}  // namespace stagecoach
