// Finite differences in double against the gradients of every kind of layer.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "model/row_norm.h"
#include "tests/unit/model/small_models.h"

namespace stagecoach {
namespace {

constexpr double kTolerance = 1e-6;

class GradientCheck : public testing::TestWithParam<std::pair<std::string, ModelConfig>> {};

// Four-point difference along `direction`: error of order h^4.
template <typename Function>
double Slope(const Function& loss, const at::Tensor& at_point, const at::Tensor& direction) {
  constexpr double kStep = 1e-3;
  const auto value = [&](double h) { return loss(at_point + direction * h); };
  return (8 * (value(kStep) - value(-kStep)) - (value(2 * kStep) - value(-2 * kStep))) / (12 * kStep);
}

// A direction with a part along the gradient, so that the slope is not small by chance.
at::Tensor Direction(const at::Tensor& gradient, uint64_t stream) {
  const at::Tensor random = TestValues(gradient.sizes(), stream, at::kDouble);
  return gradient / (gradient.norm() + 1e-12) + random / random.norm();
}

TEST_P(GradientCheck, EveryParameter_AgreesWithFiniteDifferences) {
  ModelConfig config = GetParam().second;
  config.dropout = 0.2f;
  const StageModel model(config, 3, 0, config.num_units(), at::kCPU);
  // Larger than at the start: every path then matters.
  at::Tensor flat = InitialWeights(model).to(at::kDouble);
  flat += TestValues({model.flat_size()}, 1, at::kDouble) * 0.2;
  const StageModel::Batch batch = SmallBatch(config, 4);
  const std::vector<at::Tensor> weights = model.Views(flat, true);
  double loss_sum = 0;
  const at::Tensor loss = model.Forward(weights, {}, batch, &loss_sum);
  EXPECT_NEAR(loss.item<double>(), loss_sum / static_cast<double>(batch.ids.numel()), 1e-12);
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, weights);
  for (size_t q = 0; q < weights.size(); ++q) {
    const at::Tensor direction = Direction(gradients[q], 100 + q);
    const double expected = (gradients[q] * direction).sum().item<double>();
    const double slope = Slope(
        [&](const at::Tensor& moved) {
          const at::NoGradGuard no_grad;
          std::vector<at::Tensor> changed = weights;
          changed[q] = moved;
          return model.Forward(changed, {}, batch, nullptr).item<double>();
        },
        weights[q].detach(), direction);
    // The key bias shifts every score of a query alike: its gradient is zero up to rounding.
    const double scale = std::max(std::abs(slope), 1e-6);
    EXPECT_LE(std::abs(slope - expected) / scale, kTolerance)
        << model.parameters()[q].name << " slope " << slope << " gradient " << expected;
  }
}

TEST_P(GradientCheck, StageInput_AgreesWithFiniteDifferences) {
  const ModelConfig config = GetParam().second;
  const StageModel model(config, 3, 2, config.num_units(), at::kCPU);
  const at::Tensor flat = InitialWeights(model).to(at::kDouble) * 4;
  const StageModel::Batch batch = SmallBatch(config, 4);
  const std::vector<at::Tensor> weights = model.Views(flat, false);
  const at::Tensor input = TestValues({16, config.boundary_columns()}, 7, at::kDouble).requires_grad_(true);
  const at::Tensor gradient = torch::autograd::grad({model.Forward(weights, input, batch, nullptr)}, {input})[0];
  const at::Tensor direction = Direction(gradient, 8);
  const double slope = Slope(
      [&](const at::Tensor& moved) {
        const at::NoGradGuard no_grad;
        return model.Forward(weights, moved, batch, nullptr).item<double>();
      },
      input.detach(), direction);
  EXPECT_LE(std::abs(slope - (gradient * direction).sum().item<double>()) / std::abs(slope), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, GradientCheck, testing::ValuesIn(AllKinds()),
                         [](const auto& kind) { return kind.param.first; });

TEST(RowNorm, Fp32_AgreesWithDouble) {
  const at::Tensor z = TestValues({5, 37}, 1), residual = TestValues({5, 37}, 2), gain = TestValues({37}, 3);
  const auto error = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.to(at::kDouble) - b).abs().max().item<double>();
  };
  EXPECT_LT(error(AddRowNorm(residual, z, 50, 1e-5), AddRowNorm(residual.to(at::kDouble), z.to(at::kDouble), 50, 1e-5)),
            1e-6);
  EXPECT_LT(error(RmsNorm(z, gain, 1e-5), RmsNorm(z.to(at::kDouble), gain.to(at::kDouble), 1e-5)), 1e-6);
}

}  // namespace
}  // namespace stagecoach
