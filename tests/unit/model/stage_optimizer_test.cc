// Optimizers against straightforward formulas in double; schedules; square norms.
#include "model/stage_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/newton_schulz.h"
#include "tests/unit/model/small_models.h"

namespace stagecoach {
namespace {

std::vector<ParameterInfo> ThreeParameters() {
  ParameterInfo table, matrix, gain;
  table = {"units.0.tokens", 0, {7, 5}, ParameterRole::kEmbedding, true, 0, 35};
  matrix = {"units.1.attention.q", 1, {12, 6}, ParameterRole::kMatrix, false, 48, 72};
  gain = {"units.1.norm.gain", 1, {9}, ParameterRole::kVector, false, 128, 9};
  return {table, matrix, gain};
}

ModelConfig RankFourOfSixteen() {
  ModelConfig model = WithSubspace(SmallLlama());
  model.rank = 4;
  return model;
}

OptimizerConfig Config(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.learning_rate = 0.01;
  config.rate_schedule = RateSchedule::kCosine;
  config.warmup_steps = 2;
  config.total_steps = 10;
  if (kind == OptimizerKind::kNAdam) config.beta1 = 0.99;
  return config;
}

at::Tensor NewtonSchulzInDouble(const at::Tensor& g) {
  const bool tall = g.size(0) > g.size(1);
  at::Tensor x = (tall ? g.t() : g) / (g.norm() + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor a = at::mm(x, x.t());
    x = 3.4445 * x + at::mm(-4.7750 * a + 2.0315 * at::mm(a, a), x);
  }
  return tall ? x.t() : x;
}

// One parameter, tensors in double, formulas as on the page.
struct Reference {
  at::Tensor w, m, v, previous;
  double product = 1;
  int a = 0;

  void Step(const OptimizerConfig& c, const ParameterInfo& info, uint64_t t, const at::Tensor& g, bool delayed) {
    ++a;
    const bool muon = c.kind == OptimizerKind::kMuon && info.role == ParameterRole::kMatrix;
    const double eta = RateAt(c, muon ? c.muon_learning_rate : c.learning_rate, t);
    const double eta_z = eta * (info.in_subspace ? 2.0 : 1.0);  // sqrt(16/4)
    const bool decays = info.role == ParameterRole::kMatrix;
    at::Tensor u;
    if (muon) {
      m = c.momentum * m + (1 - c.momentum) * g;
      u = eta * std::sqrt(std::max(1.0, 12.0 / 6.0)) * NewtonSchulzInDouble((1 - c.momentum) * g + c.momentum * m);
    } else if (c.kind == OptimizerKind::kSgd) {
      m = c.momentum * m + g;
      u = c.nesterov ? eta * (g + c.momentum * m) : eta * m;
    } else {
      m = c.beta1 * m + (1 - c.beta1) * g;
      v = c.beta2 * v + (1 - c.beta2) * g * g;
      const at::Tensor root = (v / (1 - std::pow(c.beta2, a))).sqrt() + c.epsilon;
      if (c.kind == OptimizerKind::kNAdam) {
        const double now = c.beta1 * (1 - 0.5 * std::pow(0.96, a * 0.004));
        const double next = c.beta1 * (1 - 0.5 * std::pow(0.96, (a + 1) * 0.004));
        product *= now;
        u = eta_z * ((1 - now) / (1 - product) * g + next / (1 - product * next) * m) / root;
      } else {
        u = eta_z * (m / (1 - std::pow(c.beta1, a))) / root;
      }
    }
    const at::Tensor step = delayed && a > 1 ? u + c.error_feedback * (u - previous) : u;
    previous = u;
    const double lambda = !decays ? 0 : muon ? c.muon_weight_decay : c.weight_decay;
    w = (1 - eta * lambda) * w - step;
  }
};

void CompareWithReference(const OptimizerConfig& config) {
  const std::vector<ParameterInfo> parameters = ThreeParameters();
  StageOptimizer optimizer(config, RankFourOfSixteen(), parameters, at::kCPU);
  std::vector<Reference> references(3);
  std::vector<at::Tensor> weights;
  for (size_t q = 0; q < 3; ++q) {
    weights.push_back(TestValues(parameters[q].shape, q));
    const at::Tensor zero = at::zeros(parameters[q].shape, at::kDouble);
    references[q] = {weights[q].to(at::kDouble), zero, zero, zero};
  }
  for (uint64_t t = 0; t < 6; ++t) {
    const bool delayed = t >= 2;
    std::vector<at::Tensor> gradients;
    for (size_t q = 0; q < 3; ++q) {
      gradients.push_back(TestValues(parameters[q].shape, 100 * t + q));
      references[q].Step(config, parameters[q], t, gradients[q].to(at::kDouble) * 0.25, delayed);
    }
    optimizer.Update(t, weights, gradients, 0.25, delayed, false);
    for (size_t q = 0; q < 3; ++q) {
      const double error = (gradients[q].to(at::kDouble) - references[q].w).abs().max().item<double>();
      EXPECT_LE(error, 3e-6) << "step " << t << " " << parameters[q].name;
    }
    weights = gradients;
  }
  EXPECT_EQ(optimizer.applied_updates(), 6u);
}

TEST(StageOptimizer, AdamW_FollowsTheFormula) { CompareWithReference(Config(OptimizerKind::kAdamW)); }
TEST(StageOptimizer, NAdam_FollowsTheFormula) { CompareWithReference(Config(OptimizerKind::kNAdam)); }
TEST(StageOptimizer, Muon_FollowsTheFormula) { CompareWithReference(Config(OptimizerKind::kMuon)); }
TEST(StageOptimizer, Sgd_FollowsTheFormula) { CompareWithReference(Config(OptimizerKind::kSgd)); }
TEST(StageOptimizer, SgdNesterov_FollowsTheFormula) {
  OptimizerConfig config = Config(OptimizerKind::kSgd);
  config.nesterov = true;
  CompareWithReference(config);
}

TEST(StageOptimizer, ErrorFeedback_FollowsTheFormula) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kMuon, OptimizerKind::kNAdam, OptimizerKind::kSgd}) {
    OptimizerConfig config = Config(kind);
    config.error_feedback = 0.5;
    CompareWithReference(config);
  }
}

TEST(StageOptimizer, Skip_KeepsStateAndCopiesWeights) {
  OptimizerConfig config = Config(OptimizerKind::kNAdam);
  config.error_feedback = 1;
  const std::vector<ParameterInfo> parameters = ThreeParameters();
  StageOptimizer optimizer(config, RankFourOfSixteen(), parameters, at::kCPU);
  std::vector<at::Tensor> weights, gradients;
  for (size_t q = 0; q < 3; ++q) {
    weights.push_back(TestValues(parameters[q].shape, q));
    gradients.push_back(TestValues(parameters[q].shape, 10 + q));
  }
  optimizer.Update(0, weights, gradients, 1, true, false);
  std::vector<at::Tensor> before;
  for (size_t q = 0; q < 3; ++q) {
    for (const auto& [kind, tensor] : optimizer.StateOf(q)) before.push_back(tensor.clone());
  }
  const double product = optimizer.nadam_product();
  std::vector<at::Tensor> bad;
  for (size_t q = 0; q < 3; ++q) bad.push_back(at::full(parameters[q].shape, std::nan("")));
  optimizer.Update(1, gradients, bad, 1, true, true);
  size_t i = 0;
  for (size_t q = 0; q < 3; ++q) {
    EXPECT_TRUE(SameBits(bad[q], gradients[q]));
    for (const auto& [kind, tensor] : optimizer.StateOf(q)) EXPECT_TRUE(SameBits(tensor, before[i++])) << kind;
  }
  EXPECT_EQ(i, 9u);
  EXPECT_EQ(optimizer.applied_updates(), 1u);
  EXPECT_EQ(optimizer.nadam_product(), product);
}

TEST(NewtonSchulz, SingularValues_AreNearOne) {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{20, 8}, {8, 20}, {16, 16}}) {
    const at::Tensor x = NewtonSchulz(TestValues({rows, columns}, 3));
    ASSERT_EQ(x.size(0), rows);
    const at::Tensor small = rows < columns ? at::mm(x, x.t()) : at::mm(x.t(), x);
    const double share = small.trace().item<double>() / static_cast<double>(small.size(0));
    EXPECT_GT(share, 0.5);
    EXPECT_LT(share, 1.4);
  }
}

TEST(SquareNorms, EqualTheirDefinitionBitForBit) {
  for (const int64_t count : {1, 1023, 1024, 1025, 8 * 1024, 9 * 1024 + 5, 20000}) {
    const at::Tensor values = TestValues({count}, static_cast<uint64_t>(count));
    double total = 0;
    for (int64_t first = 0; first < count; first += 1024) {
      double block = 0;
      for (int64_t i = first; i < std::min(count, first + 1024); ++i) {
        const double x = static_cast<double>(values.data_ptr<float>()[i]) * 0.125;
        block += x * x;
      }
      total += block;
    }
    EXPECT_EQ(StageOptimizer::SquareNorms({values}, 0.125)[0], total) << count;
  }
}

TEST(RateAt, Schedules_HaveTheirShapes) {
  OptimizerConfig config;
  config.warmup_steps = 10;
  config.total_steps = 110;
  const auto rate = [&](RateSchedule schedule, uint64_t step) {
    config.rate_schedule = schedule;
    return RateAt(config, 2.0, step);
  };
  for (const RateSchedule schedule :
       {RateSchedule::kConstant, RateSchedule::kCosine, RateSchedule::kWsd, RateSchedule::kLinear}) {
    EXPECT_DOUBLE_EQ(rate(schedule, 0), 0.2);
    EXPECT_DOUBLE_EQ(rate(schedule, 9), 2.0);
    EXPECT_DOUBLE_EQ(rate(schedule, 10), 2.0);
  }
  EXPECT_DOUBLE_EQ(rate(RateSchedule::kConstant, 109), 2.0);
  EXPECT_DOUBLE_EQ(rate(RateSchedule::kCosine, 60), 1.1);
  EXPECT_NEAR(rate(RateSchedule::kCosine, 110), 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(rate(RateSchedule::kLinear, 60), 1.1);
  EXPECT_DOUBLE_EQ(rate(RateSchedule::kWsd, 87), 2.0);
  EXPECT_DOUBLE_EQ(rate(RateSchedule::kWsd, 99), 2.0 * (1 - std::sqrt(0.5)));
  EXPECT_NEAR(rate(RateSchedule::kOneCycle, 0), 0.08, 1e-12);
  EXPECT_NEAR(rate(RateSchedule::kOneCycle, 33), 2.0, 1e-12);
  EXPECT_LT(rate(RateSchedule::kOneCycle, 109), 0.01);
}

}  // namespace
}  // namespace stagecoach
