// What a stage computes: independence of the cut, dropout, positions, precision, names.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "common/model_shape.h"
#include "model/counter_values.h"
#include "model/generate.h"
#include "model/parameter_layout.h"
#include "tests/unit/model/small_models.h"

namespace stagecoach {
namespace {

struct Pass {
  double loss = 0;
  std::vector<at::Tensor> gradients;  // canonical order over all stages
};

// Forward and backward through stages cut in front of the given units.
Pass RunCut(const ModelConfig& config, std::vector<uint32_t> cuts, const StageModel::Batch& batch) {
  std::vector<std::unique_ptr<StageModel>> stages;
  cuts.push_back(config.num_units());
  uint32_t first = 0;
  for (const uint32_t cut : cuts) {
    stages.push_back(std::make_unique<StageModel>(config, 11, first, cut, at::kCPU));
    first = cut;
  }
  std::vector<std::vector<at::Tensor>> weights;
  std::vector<at::Tensor> inputs, outputs;
  at::Tensor stream;
  for (const auto& stage : stages) {
    weights.push_back(stage->Views(InitialWeights(*stage), true));
    inputs.push_back(stream);
    outputs.push_back(stage->Forward(weights.back(), stream, batch, nullptr));
    stream = outputs.back().detach().clone().requires_grad_(true);
  }
  std::vector<std::vector<at::Tensor>> gradients(stages.size());
  at::Tensor upper;
  for (size_t i = stages.size(); i-- > 0;) {
    std::vector<at::Tensor> leaves = weights[i];
    if (i > 0) leaves.push_back(inputs[i]);
    gradients[i] = torch::autograd::grad({outputs[i]}, leaves, {upper});
    if (i > 0) {
      upper = gradients[i].back().clone().contiguous();
      gradients[i].pop_back();
    }
  }
  Pass pass;
  pass.loss = outputs.back().item<double>();
  for (const auto& part : gradients) pass.gradients.insert(pass.gradients.end(), part.begin(), part.end());
  return pass;
}

class StageModelKinds : public testing::TestWithParam<std::pair<std::string, ModelConfig>> {};

TEST_P(StageModelKinds, CutsAtEveryAllowedPosition_ChangeNoBit) {
  ModelConfig config = GetParam().second;
  config.layers = 4;
  config.dropout = 0.1f;
  const StageModel::Batch batch = SmallBatch(config, 2);
  const Pass whole = RunCut(config, {}, batch);
  std::vector<uint32_t> allowed;
  for (uint32_t unit = 0; unit <= config.num_units(); ++unit) {
    if (config.CutAllowed(unit)) allowed.push_back(unit);
  }
  ASSERT_GE(allowed.size(), 3u);
  for (uint32_t set = 1; set < (1u << allowed.size()); ++set) {
    std::vector<uint32_t> cuts;
    for (size_t i = 0; i < allowed.size(); ++i) {
      if ((set >> i) & 1) cuts.push_back(allowed[i]);
    }
    const Pass cut = RunCut(config, cuts, batch);
    EXPECT_EQ(cut.loss, whole.loss) << "cut set " << set;
    ASSERT_EQ(cut.gradients.size(), whole.gradients.size());
    for (size_t q = 0; q < whole.gradients.size(); ++q) {
      EXPECT_TRUE(SameBits(cut.gradients[q], whole.gradients[q])) << "cut set " << set << " parameter " << q;
    }
  }
}

TEST_P(StageModelKinds, Recompute_GivesEqualBits) {
  ModelConfig config = GetParam().second;
  config.dropout = 0.3f;
  const StageModel model(config, 11, 0, config.num_units(), at::kCPU);
  const std::vector<at::Tensor> weights = model.Views(InitialWeights(model), false);
  const StageModel::Batch batch = SmallBatch(config, 6), other = SmallBatch(config, 7);
  const at::Tensor first = model.Forward(weights, {}, batch, nullptr);
  const at::Tensor between = model.Forward(weights, {}, other, nullptr);
  EXPECT_TRUE(SameBits(first, model.Forward(weights, {}, batch, nullptr)));
  EXPECT_FALSE(SameBits(first, between));
}

TEST_P(StageModelKinds, FutureTokens_DoNotChangeEarlierLogits) {
  const ModelConfig config = GetParam().second;
  const StageModel model(config, 11, 0, config.num_units(), at::kCPU);
  const std::vector<at::Tensor> weights = model.Views(InitialWeights(model), false);
  at::Tensor ids = SmallBatch(config, 6, 1).ids.clone();
  const at::Tensor before = model.Logits(weights, ids);
  ids[0][5] = (ids[0][5].item<int64_t>() + 1) % config.vocabulary;
  const at::Tensor after = model.Logits(weights, ids);
  EXPECT_TRUE(SameBits(before.narrow(0, 0, 5), after.narrow(0, 0, 5)));
  EXPECT_FALSE(SameBits(before.narrow(0, 5, 1), after.narrow(0, 5, 1)));
}

TEST_P(StageModelKinds, PositionsMatter) {
  const ModelConfig config = GetParam().second;
  const StageModel model(config, 11, 0, config.num_units(), at::kCPU);
  at::Tensor flat = InitialWeights(model) * 5;
  const std::vector<at::Tensor> weights = model.Views(flat, false);
  const at::Tensor ids = at::tensor({3, 7, 9, 4}, at::kLong).view({1, 4});
  const at::Tensor swapped = at::tensor({7, 3, 9, 4}, at::kLong).view({1, 4});
  // Without positions the last token would see the same set of earlier tokens.
  const at::Tensor difference = model.Logits(weights, ids)[3] - model.Logits(weights, swapped)[3];
  EXPECT_GT(difference.abs().max().item<double>(), 1e-4);
}

TEST_P(StageModelKinds, Bf16_IsCloseToFp32) {
  ModelConfig config = GetParam().second;
  const StageModel::Batch batch = SmallBatch(config, 2);
  const Pass fp32 = RunCut(config, {}, batch);
  config.compute = ComputeType::kBf16;
  const Pass bf16 = RunCut(config, {}, batch);
  EXPECT_NEAR(bf16.loss, fp32.loss, 2e-2);
  EXPECT_NE(bf16.loss, fp32.loss);
  const at::Tensor& head = fp32.gradients.back();
  EXPECT_LT((bf16.gradients.back() - head).norm().item<double>(), 0.05 * head.norm().item<double>());
}

TEST_P(StageModelKinds, Layout_IsAlignedUniqueAndIndependentOfTheCut) {
  const ModelConfig config = GetParam().second;
  const StageModel whole(config, 11, 0, config.num_units(), at::kCPU);
  const StageModel tail(config, 11, 3, config.num_units(), at::kCPU);
  std::set<std::string> names;
  int64_t end = 0;
  for (const ParameterInfo& info : whole.parameters()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(info.offset % 16, 0);
    EXPECT_GE(info.offset, end);
    end = info.offset + info.numel;
  }
  EXPECT_LE(end, whole.flat_size());
  const std::vector<at::Tensor> all = whole.Views(InitialWeights(whole), false);
  const std::vector<at::Tensor> part = tail.Views(InitialWeights(tail), false);
  const size_t skipped = all.size() - part.size();
  for (size_t q = 0; q < part.size(); ++q) {
    EXPECT_EQ(tail.parameters()[q].name, whole.parameters()[skipped + q].name);
    EXPECT_TRUE(SameBits(part[q], all[skipped + q])) << tail.parameters()[q].name;
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, StageModelKinds, testing::ValuesIn(AllKinds()),
                         [](const auto& kind) { return kind.param.first; });

TEST(StageModel, TwoThreads_GiveTheLossOfOne) {
  const ModelConfig config = WithSubspace(SmallLlama());
  const StageModel::Batch batch = SmallBatch(config, 2);
  const Pass one = RunCut(config, {}, batch);
  ConfigureTorch(2);
  const Pass two = RunCut(config, {}, batch);
  ConfigureTorch(1);
  EXPECT_NEAR(one.loss, two.loss, 1e-6);
}

TEST(StageModel, ForbiddenCut_IsRefused) {
  const ModelConfig config = WithSubspace(SmallLlama());
  EXPECT_THROW(StageModel(config, 1, 0, 4, at::kCPU), c10::Error);  // behind the tail block
  EXPECT_THROW(StageModel(config, 1, 2, 2, at::kCPU), c10::Error);
}

TEST(CounterValues, Gaussian_HasMeanAndDeviation) {
  std::vector<float> values(40000);
  FillGaussian(CounterRng(1, RngPurpose::kInit, 5), 0.02, values.data(), static_cast<int64_t>(values.size()));
  const at::Tensor tensor = at::from_blob(values.data(), {40000}, at::kFloat).to(at::kDouble);
  EXPECT_NEAR(tensor.mean().item<double>(), 0, 4 * 0.02 / 200);
  EXPECT_NEAR(tensor.std().item<double>(), 0.02, 0.0004);
}

TEST(CounterValues, DropoutMask_KeepsTheMeanAndFollowsTheGenerator) {
  std::vector<float> mask(40001);
  const CounterRng rng(1, RngPurpose::kDropout, 77);
  FillDropoutMask(rng, 1000, 0.25f, mask.data(), static_cast<int64_t>(mask.size()));
  double sum = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    sum += mask[i];
    EXPECT_EQ(mask[i] == 0, rng.Block(1000 + i / 4)[i % 4] < (1u << 30));
  }
  EXPECT_NEAR(sum / static_cast<double>(mask.size()), 1.0, 0.012);
}

TEST(Generate, TemperatureZero_IsArgmaxAndSamplingIsReproducible) {
  const ModelConfig config = WithSubspace(SmallLlama());
  const StageModel model(config, 11, 0, config.num_units(), at::kCPU);
  const std::vector<at::Tensor> weights = model.Views(InitialWeights(model) * 3, false);
  GenerateOptions options;
  options.count = 20;
  options.window = config.max_tokens;
  options.temperature = 0;
  const std::vector<int64_t> greedy = Generate(model, weights, {1, 2, 3}, options);
  ASSERT_EQ(greedy.size(), 20u);
  const at::Tensor logits = model.Logits(weights, at::tensor({1, 2, 3}, at::kLong).view({1, 3}));
  EXPECT_EQ(greedy[0], logits[2].argmax().item<int64_t>());
  options.temperature = 1.5;
  options.top_k = 0;
  const std::vector<int64_t> sampled = Generate(model, weights, {1, 2, 3}, options);
  EXPECT_EQ(sampled, Generate(model, weights, {1, 2, 3}, options));
  options.seed = 2;
  EXPECT_NE(sampled, Generate(model, weights, {1, 2, 3}, options));
  options.top_k = 1;
  EXPECT_EQ(Generate(model, weights, {1, 2, 3}, options), greedy);
}

// What plans reckon with when no model is built.
TEST(ModelShapeTest, ParametersAndCuts_AreThoseOfTheModel) {
  for (const auto& [name, config] : AllKinds()) {
    SCOPED_TRACE(name);
    ModelShape shape;
    shape.gpt2 = config.architecture == Architecture::kGpt2;
    shape.pre_norm = config.norm == NormPlacement::kPre;
    shape.width = static_cast<uint64_t>(config.width);
    shape.layers = static_cast<uint64_t>(config.layers);
    shape.heads = static_cast<uint64_t>(config.heads);
    shape.kv_heads = static_cast<uint64_t>(config.kv_heads);
    shape.feedforward = static_cast<uint64_t>(config.feedforward);
    shape.vocabulary = static_cast<uint64_t>(config.vocabulary);
    shape.max_tokens = static_cast<uint64_t>(config.max_tokens);
    shape.rank = static_cast<uint64_t>(config.rank);
    shape.tail_layers = static_cast<uint64_t>(config.tail_layers);
    EXPECT_EQ(shape.boundary_columns(), config.boundary_columns());
    ASSERT_EQ(shape.num_units(), config.num_units());
    for (uint32_t unit = 0; unit < config.num_units(); ++unit) {
      uint64_t parameters = 0;
      for (const LayoutEntry& entry : ParameterLayout(config, unit, unit + 1)) {
        parameters += static_cast<uint64_t>(entry.info.numel);
      }
      EXPECT_EQ(UnitParameters(shape, shape.KindOf(unit)), parameters) << "unit " << unit;
      EXPECT_EQ(shape.CutAllowed(unit), config.CutAllowed(unit)) << "unit " << unit;
    }
  }
}

}  // namespace
}  // namespace stagecoach
