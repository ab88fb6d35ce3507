// The basis, the anchors, and the claim that coordinates lose nothing: the same model written out d-wide.
#include "model/subspace.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>

#include "model/counter_values.h"
#include "model/tensor_hash.h"
#include "tests/unit/model/small_models.h"

namespace stagecoach {
namespace {

ModelConfig FourBlocks() {
  ModelConfig config = WithSubspace(SmallLlama());
  config.layers = 4;
  return config;
}

TEST(Subspace, Basis_IsOrthonormal) {
  for (const auto& [width, rank] :
       std::vector<std::pair<int64_t, int64_t>>{{16, 6}, {64, 64}, {512, 32}, {1024, 160}}) {
    const at::Tensor basis = MakeBasis(7, width, rank).to(at::kDouble);
    const double error = (at::mm(basis.t(), basis) - at::eye(rank, at::kDouble)).abs().max().item<double>();
    EXPECT_LE(error, 1e-6) << width << " x " << rank;
  }
}

TEST(Subspace, BasisAndAnchors_HaveTheirFixedHashes) {
  ModelConfig config = FourBlocks();
  config.width = 512;
  config.rank = 32;
  config.heads = 8;
  const StageModel model(config, 1, 0, config.num_units(), at::kCPU);
  // Integer sums, one multiplication, and + - * / sqrt in a fixed order: these hold on every platform.
  EXPECT_EQ(model.BasisSha256(), "65d137b9a3bbe56599cec9ad6c237d558ba7a106543ba28b611512a73995a39c");
  EXPECT_EQ(model.AnchorSha256(), "d9a3332b1b156b05cc98ae2c0e5c563ac3970cde73e54c1cc06cfdc61ef41302");
  const StageModel other(config, 2, 2, 3, at::kCPU);
  EXPECT_NE(model.BasisSha256(), other.BasisSha256());
  EXPECT_NE(model.AnchorSha256(), other.AnchorSha256());
  EXPECT_EQ(StageModel(SmallLlama(), 1, 0, 5, at::kCPU).BasisSha256(), "");
}

TEST(Subspace, Anchors_HaveMeanZeroVarianceOneBoundedRange) {
  at::Tensor rows = at::empty({200, 257}, at::kFloat);
  for (int64_t t = 0; t < 200; ++t) {
    FillAnchorRow(CounterRng(1, RngPurpose::kAnchor), static_cast<uint64_t>(t), 257, rows.data_ptr<float>() + t * 257);
  }
  const at::Tensor values = rows.to(at::kDouble);
  EXPECT_NEAR(values.mean().item<double>(), 0, 4 / std::sqrt(51400.0));
  EXPECT_NEAR(values.var().item<double>(), 1, 0.03);
  EXPECT_NEAR(values.pow(4).mean().item<double>(), 2.7, 0.1);
  EXPECT_LE(values.abs().max().item<double>(), 3.4642);
}

TEST(Subspace, RowCache_GivesTheRowsOfTheTableAlsoAfterEviction) {
  ModelConfig config = FourBlocks();
  config.width = 4096;
  config.rank = 2;
  config.vocabulary = 5000;  // 5000 * 4096 > 2^24: the cache holds 4096 rows
  const Subspace subspace(config, 3, at::kCPU);
  at::Tensor expected = at::empty({1, 4096}, at::kFloat);
  for (int64_t first = 0; first < 5000; first += 1000) {
    subspace.FixedRows(at::arange(first, first + 1000, at::kLong).view({2, 500}), at::kFloat);
  }
  const at::Tensor ids = at::tensor({0, 4999, 17, 904, 903, 0}, at::kLong).view({1, 6});
  const at::Tensor rows = subspace.FixedRows(ids, at::kFloat);
  for (int64_t i = 0; i < 6; ++i) {
    FillAnchorRow(CounterRng(3, RngPurpose::kAnchor), static_cast<uint64_t>(ids[0][i].item<int64_t>()), 4096,
                  expected.data_ptr<float>());
    EXPECT_TRUE(SameBits(rows.narrow(0, i, 1), expected)) << i;
  }
}

// The subspace model as an ordinary one: tokens = E U' + A, W = Z U'.
struct DenseTwin {
  ModelConfig config = FourBlocks();
  ModelConfig dense_config = FourBlocks();
  at::Tensor basis = MakeBasis(11, config.width, config.rank);
  Subspace subspace{config, 11, at::kCPU};

  DenseTwin() { dense_config.compression = Compression::kNone; }

  std::vector<at::Tensor> Weights(const StageModel& model, const std::vector<at::Tensor>& weights) const {
    const at::Tensor vocabulary = at::arange(config.vocabulary, at::kLong);
    std::vector<at::Tensor> dense;
    for (size_t q = 0; q < weights.size(); ++q) {
      const ParameterInfo& info = model.parameters()[q];
      if (!info.in_subspace) {
        dense.push_back(weights[q]);
      } else if (info.role == ParameterRole::kEmbedding) {
        dense.push_back(subspace.Materialise(weights[q], subspace.FixedRows(vocabulary.view({1, -1}), at::kFloat)));
      } else {
        dense.push_back(at::mm(basis, weights[q]));
      }
    }
    return dense;
  }

  // abs(R - R U U') / abs(R)
  double OutsideShare(const at::Tensor& r) const {
    const at::Tensor rows = r.to(at::kDouble), u = basis.to(at::kDouble);
    return ((rows - at::mm(at::mm(rows, u), u.t())).norm() / rows.norm()).item<double>();
  }
};

TEST(Subspace, DenseTwin_StaysInTheSubspaceAtEveryBoundary) {
  const DenseTwin twin;
  for (uint32_t cut = 2; cut <= 4; ++cut) {
    const StageModel coordinates(twin.config, 11, 0, cut, at::kCPU), dense(twin.dense_config, 11, 0, cut, at::kCPU);
    const std::vector<at::Tensor> weights = coordinates.Views(InitialWeights(coordinates), false);
    const StageModel::Batch batch = SmallBatch(twin.config, 1);
    const at::Tensor c = coordinates.Forward(weights, {}, batch, nullptr);
    const at::Tensor x = dense.Forward(twin.Weights(coordinates, weights), {}, batch, nullptr);
    const at::Tensor rows = twin.subspace.FixedRows(batch.ids, at::kFloat);
    const at::Tensor r = x - rows;
    EXPECT_LE(twin.OutsideShare(r), 1e-6) << "cut " << cut;
    EXPECT_LE((twin.subspace.Materialise(c, rows) - x).abs().max().item<double>(), 2e-5) << "cut " << cut;
    // The check must fire for writers outside S: a d-wide gain of 1 +- 0.1, a bias of 0.1.
    at::Tensor gain = at::ones({twin.config.width});
    for (int64_t j = 0; j < twin.config.width; ++j) gain[j] = j % 2 == 0 ? 1.1 : 0.9;
    EXPECT_GT(twin.OutsideShare(r * gain), 0.05);
    at::Tensor outside = TestValues({1, twin.config.width}, 4);
    outside -= at::mm(at::mm(outside, twin.basis), twin.basis.t());
    outside *= 0.1 / outside.norm() * r.norm() / std::sqrt(static_cast<double>(r.size(0)));
    EXPECT_GT(twin.OutsideShare(r + outside), 0.05);
  }
}

TEST(Subspace, CoordinateGradient_IsTheProjectedDenseGradient) {
  const DenseTwin twin;
  const StageModel coordinates(twin.config, 11, 2, twin.config.num_units(), at::kCPU);
  const StageModel dense(twin.dense_config, 11, 2, twin.config.num_units(), at::kCPU);
  const std::vector<at::Tensor> weights = coordinates.Views(InitialWeights(coordinates), false);
  const StageModel::Batch batch = SmallBatch(twin.config, 1);
  const at::Tensor c = TestValues({16, twin.config.rank}, 5).requires_grad_(true);
  const at::Tensor x = twin.subspace.Materialise(c.detach(), twin.subspace.FixedRows(batch.ids, at::kFloat));
  const at::Tensor wide = x.clone().requires_grad_(true);
  const at::Tensor dc = torch::autograd::grad({coordinates.Forward(weights, c, batch, nullptr)}, {c})[0];
  const at::Tensor dx =
      torch::autograd::grad({dense.Forward(twin.Weights(coordinates, weights), wide, batch, nullptr)}, {wide})[0];
  EXPECT_LE((dc - at::mm(dx, twin.basis)).norm().item<double>(), 1e-5 * dc.norm().item<double>());
}

}  // namespace
}  // namespace stagecoach
