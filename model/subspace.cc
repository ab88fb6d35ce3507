#include "model/subspace.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/counter_values.h"
#include "model/tensor_hash.h"

namespace stagecoach {
namespace {

// 64 MiB of anchors: larger tables are the biggest overhead of a thin stage, and few tokens are in use at a time.
constexpr int64_t kMaxAnchorFloats = int64_t{1} << 24;
constexpr uint64_t kPositionStream = 1;
constexpr int64_t kHashedAnchorRows = 16;

// One pass of modified Gram-Schmidt over the columns of `matrix` (rows x columns, row-major). All later columns are
// treated side by side; every sum runs over the rows in order.
void Orthonormalise(std::vector<double>* matrix, int64_t rows, int64_t columns) {
  double* a = matrix->data();
  std::vector<double> products(static_cast<size_t>(columns));
  for (int64_t j = 0; j < columns; ++j) {
    double square = 0;
    for (int64_t i = 0; i < rows; ++i) square += a[i * columns + j] * a[i * columns + j];
    const double length = std::sqrt(square);  // the diagonal of R: positive
    for (int64_t i = 0; i < rows; ++i) a[i * columns + j] /= length;
    std::fill(products.begin(), products.end(), 0.0);
    for (int64_t i = 0; i < rows; ++i) {
      const double value = a[i * columns + j];
      for (int64_t l = j + 1; l < columns; ++l) products[static_cast<size_t>(l)] += value * a[i * columns + l];
    }
    for (int64_t i = 0; i < rows; ++i) {
      const double value = a[i * columns + j];
      for (int64_t l = j + 1; l < columns; ++l) a[i * columns + l] -= value * products[static_cast<size_t>(l)];
    }
  }
}

}  // namespace

at::Tensor MakeBasis(uint64_t seed, int64_t width, int64_t rank) {
  const CounterRng rng(seed, RngPurpose::kBasis);
  std::vector<float> row(static_cast<size_t>(rank));
  std::vector<double> matrix;
  matrix.reserve(static_cast<size_t>(width * rank));
  for (int64_t i = 0; i < width; ++i) {
    FillAnchorRow(rng, static_cast<uint64_t>(i), rank, row.data());
    matrix.insert(matrix.end(), row.begin(), row.end());
  }
  Orthonormalise(&matrix, width, rank);
  Orthonormalise(&matrix, width, rank);
  at::Tensor basis = at::empty({width, rank}, at::kFloat);
  std::transform(matrix.begin(), matrix.end(), basis.data_ptr<float>(),
                 [](double value) { return static_cast<float>(value); });
  return basis;
}

Subspace::Subspace(const ModelConfig& config, uint64_t seed, at::Device device)
    : width_(config.width),
      vocabulary_(config.vocabulary),
      has_positions_(config.architecture == Architecture::kGpt2),
      device_(device),
      anchor_rng_(seed, RngPurpose::kAnchor),
      position_rng_(seed, RngPurpose::kAnchor, kPositionStream),
      whole_table_(config.vocabulary * config.width <= kMaxAnchorFloats) {
  transposed_basis_ = MakeBasis(seed, config.width, config.rank).t().contiguous().to(device);
  transposed_basis64_ = transposed_basis_.to(at::kDouble);
  if (has_positions_) {
    positions_ = at::empty({config.max_tokens, width_}, at::kFloat);
    for (int64_t t = 0; t < config.max_tokens; ++t) {
      FillAnchorRow(position_rng_, static_cast<uint64_t>(t), width_, positions_.data_ptr<float>() + t * width_);
    }
    positions_ = positions_.to(device);
  }
  capacity_ = whole_table_ ? vocabulary_ : std::max<int64_t>(1, kMaxAnchorFloats / width_);
  rows_ = at::empty({capacity_, width_}, at::kFloat);
  if (whole_table_) {
    for (int64_t t = 0; t < vocabulary_; ++t) {
      FillAnchorRow(anchor_rng_, static_cast<uint64_t>(t), width_, rows_.data_ptr<float>() + t * width_);
    }
    rows_ = rows_.to(device);
  }
}

const float* Subspace::AnchorRow(int64_t token) const {
  const auto found = slots_.find(token);
  if (found != slots_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return rows_.data_ptr<float>() + found->second->second * width_;
  }
  int64_t slot = static_cast<int64_t>(recent_.size());
  if (slot == capacity_) {
    slot = recent_.back().second;
    slots_.erase(recent_.back().first);
    recent_.pop_back();
  }
  float* row = rows_.data_ptr<float>() + slot * width_;
  FillAnchorRow(anchor_rng_, static_cast<uint64_t>(token), width_, row);
  recent_.emplace_front(token, slot);
  slots_[token] = recent_.begin();
  return row;
}

at::Tensor Subspace::FixedRows(const at::Tensor& ids, at::ScalarType type) const {
  const at::Tensor flat = ids.reshape({-1});
  at::Tensor rows;
  if (whole_table_) {
    rows = at::index_select(rows_, 0, flat.to(device_));
  } else {
    const at::Tensor host = flat.to(at::kCPU).contiguous();
    const int64_t* token = host.data_ptr<int64_t>();
    rows = at::empty({host.numel(), width_}, at::kFloat);
    for (int64_t i = 0; i < host.numel(); ++i) {
      TORCH_CHECK(token[i] >= 0 && token[i] < vocabulary_, "token id ", token[i], " is not below ", vocabulary_);
      std::memcpy(rows.data_ptr<float>() + i * width_, AnchorRow(token[i]),
                  sizeof(float) * static_cast<size_t>(width_));
    }
    rows = rows.to(device_);
  }
  if (has_positions_) {
    const int64_t tokens = ids.size(-1);
    rows.view({-1, tokens, width_}).add_(positions_.narrow(0, 0, tokens));
  }
  return rows.to(type);
}

at::Tensor Subspace::Materialise(const at::Tensor& coordinates, const at::Tensor& rows) const {
  const bool is_double = coordinates.scalar_type() == at::kDouble;
  return at::addmm(rows, coordinates, is_double ? transposed_basis64_ : transposed_basis_);
}

std::string Subspace::BasisSha256() const { return TensorsSha256({transposed_basis_.t()}); }

std::string Subspace::AnchorSha256() const {
  at::Tensor rows = at::empty({kHashedAnchorRows, width_}, at::kFloat);
  for (int64_t t = 0; t < kHashedAnchorRows; ++t) {
    FillAnchorRow(anchor_rng_, static_cast<uint64_t>(t), width_, rows.data_ptr<float>() + t * width_);
  }
  return TensorsSha256({rows});
}

}  // namespace stagecoach
