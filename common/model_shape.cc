#include "common/model_shape.h"

#include <algorithm>

namespace stagecoach {
namespace {

struct Matrix {
  uint64_t out, in;
};

// Matrices of a block; those that write the residual stream write coordinates where the block is constrained.
std::vector<Matrix> BlockMatrices(const ModelShape& shape, bool constrained) {
  const uint64_t d = shape.width, hidden = shape.feedforward, kv = d / shape.heads * shape.kv_heads;
  const uint64_t written = constrained ? shape.rank : d;
  std::vector<Matrix> matrices = {{d, d}, {kv, d}, {kv, d}, {written, d}, {hidden, d}, {written, hidden}};
  if (!shape.gpt2) matrices.push_back({hidden, d});  // gate
  return matrices;
}

bool Constrained(const ModelShape& shape, UnitKind kind) { return kind == UnitKind::kBlock && shape.rank > 0; }

}  // namespace

UnitKind ModelShape::KindOf(uint32_t unit) const {
  if (unit == 0) return UnitKind::kEmbedding;
  if (unit > layers) return UnitKind::kHead;
  return rank > 0 && unit > layers - tail_layers ? UnitKind::kTailBlock : UnitKind::kBlock;
}

uint64_t UnitParameters(const ModelShape& shape, UnitKind kind) {
  const uint64_t norm = shape.width * (shape.gpt2 ? 2 : 1);
  if (kind == UnitKind::kEmbedding) {
    const bool positions = shape.gpt2 && shape.rank == 0;
    return shape.vocabulary * shape.boundary_columns() + (positions ? shape.max_tokens * shape.width : 0);
  }
  if (kind == UnitKind::kHead) return norm + shape.vocabulary * shape.width;
  uint64_t parameters = shape.pre_norm ? 2 * norm : 0;
  for (const Matrix& matrix : BlockMatrices(shape, Constrained(shape, kind))) {
    parameters += matrix.out * matrix.in + (shape.gpt2 ? matrix.out : 0);
  }
  return parameters;
}

uint64_t UnitActivationBytes(const ModelShape& shape, UnitKind kind, uint64_t sequences, uint64_t sequence_tokens) {
  const uint64_t rows = sequences * sequence_tokens;
  if (kind == UnitKind::kEmbedding) return rows * shape.width * sizeof(float);
  if (kind == UnitKind::kHead) return rows * shape.vocabulary * sizeof(float);
  // Inputs of the matrix products and norms, q, k, v, attention probabilities, the gate's factors.
  const uint64_t numbers = 8 * shape.width + 4 * shape.feedforward + 2 * shape.heads * sequence_tokens;
  return rows * numbers * sizeof(float);
}

double ForwardFlopsPerToken(const ModelShape& shape, UnitKind kind, uint64_t sequence_tokens) {
  const auto d = static_cast<double>(shape.width), k = static_cast<double>(shape.rank);
  if (kind == UnitKind::kEmbedding) return 2 * k * d;
  if (kind == UnitKind::kHead) return 2 * static_cast<double>(shape.vocabulary) * d;
  double flops = 4 * static_cast<double>(sequence_tokens) * d;
  if (Constrained(shape, kind)) flops += 2 * 2 * k * d;  // behind attention and behind the feed-forward part
  for (const Matrix& matrix : BlockMatrices(shape, Constrained(shape, kind))) {
    flops += 2 * static_cast<double>(matrix.out) * static_cast<double>(matrix.in);
  }
  return flops;
}

double MuonFlops(const ModelShape& shape, UnitKind kind) {
  if (kind == UnitKind::kEmbedding || kind == UnitKind::kHead) return 0;
  double flops = 0;
  for (const Matrix& matrix : BlockMatrices(shape, Constrained(shape, kind))) {
    const auto r = static_cast<double>(std::min(matrix.out, matrix.in));
    const auto c = static_cast<double>(std::max(matrix.out, matrix.in));
    flops += 5 * (4 * r * r * c + 2 * r * r * r);
  }
  return flops;
}

}  // namespace stagecoach
