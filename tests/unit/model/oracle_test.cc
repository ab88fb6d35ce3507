// The oracle against textbook loops written here without it, and against itself with other cuts.
#include "model/oracle.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "common/clip_rule.h"
#include "model/stage_optimizer.h"
#include "tests/unit/model/small_models.h"

namespace stagecoach {
namespace {

// A noisy rule from token to token: learnable down to its noise.
void FillTokens(uint64_t index, bool evaluation, uint32_t sequences, uint32_t tokens, int64_t vocabulary, double noise,
                absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
  const CounterRng rng(evaluation ? 8 : 7, RngPurpose::kTest, index);
  for (uint32_t b = 0; b < sequences; ++b) {
    int64_t token = rng.Block(b)[0] % vocabulary;
    for (uint32_t i = 0; i < tokens; ++i) {
      const auto words = rng.Block(1000 + b * tokens + i);
      const bool random = words[0] < noise * 4294967295.0;
      ids[b * tokens + i] = token;
      token = random ? words[1] % vocabulary : (token * 5 + 3) % vocabulary;
      labels[b * tokens + i] = token;
    }
  }
}

OracleBatches Batches(const RunConfig& config, double noise = 0.2) {
  return [=](uint64_t index, bool evaluation, absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
    FillTokens(index, evaluation, config.sequences, config.tokens, config.model.vocabulary, noise, ids, labels);
  };
}

RunConfig SmallRun() {
  RunConfig config;
  config.model = WithSubspace(SmallLlama());
  config.model.layers = 4;
  config.seed = 11;
  config.optimizer.learning_rate = 3e-3;
  config.optimizer.total_steps = 6;
  config.microbatches = 4;
  config.sequences = 2;
  config.tokens = 8;
  config.total_steps = 6;
  return config;
}

RunConfig WithCuts(RunConfig config, std::vector<uint32_t> cuts, WireFormat format = WireFormat::kFp32) {
  config.codecs.assign(cuts.size(), format);
  config.cuts = std::move(cuts);
  return config;
}

OracleResult Train(const RunConfig& config, const OracleOptions& options = {}) {
  return RunOracle(config, Batches(config), options);
}

// What crosses a boundary, as a function that autograd can go through.
class Wire : public torch::autograd::Function<Wire> {
 public:
  static at::Tensor Cross(const at::Tensor& x, WireFormat format, const StochasticRounding* rounding) {
    const auto rows = static_cast<uint32_t>(x.size(0)), columns = static_cast<uint32_t>(x.size(1));
    const at::Tensor from = x.contiguous();
    at::Tensor to = at::empty_like(from);
    const auto count = static_cast<size_t>(from.numel());
    std::vector<uint8_t> bytes(EncodedBytes(format, rows, columns));
    EXPECT_TRUE(Encode(format, rows, columns, {from.data_ptr<float>(), count}, rounding, absl::MakeSpan(bytes)));
    EXPECT_TRUE(Decode(format, rows, columns, bytes, {to.data_ptr<float>(), count}));
    return to;
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, int64_t format, int64_t n,
                            int64_t cut) {
    context->saved_data["format"] = format;
    context->saved_data["n"] = n;
    context->saved_data["cut"] = cut;
    return Cross(x, static_cast<WireFormat>(format), nullptr);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upper) {
    auto& saved = context->saved_data;
    const StochasticRounding rounding{11, static_cast<uint64_t>(saved["n"].toInt()),
                                      static_cast<uint32_t>(saved["cut"].toInt())};
    return {Cross(upper[0], static_cast<WireFormat>(saved["format"].toInt()), &rounding), {}, {}, {}};
  }
};

// One graph over all stages, .grad accumulated by autograd, versions W^(t) and W^(t-1) only (J <= M).
struct TextbookLoop {
  const RunConfig& config;
  std::vector<std::unique_ptr<StageModel>> stages;
  std::vector<at::Tensor> now, before;  // flat weights of each stage
  std::vector<std::unique_ptr<StageOptimizer>> optimizers;
  std::vector<double> losses;

  explicit TextbookLoop(const RunConfig& run) : config(run) {
    for (uint32_t i = 0; i < run.num_stages(); ++i) {
      stages.push_back(std::make_unique<StageModel>(run.model, run.seed, run.first_unit(i), run.end_unit(i), at::kCPU));
      optimizers.push_back(
          std::make_unique<StageOptimizer>(run.optimizer, run.model, stages[i]->parameters(), at::kCPU));
      now.push_back(InitialWeights(*stages[i]));
    }
    before = now;
    for (uint64_t t = 0; t < run.total_steps; ++t) Step(t);
  }

  double Microbatch(uint64_t n, const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& sums) {
    StageModel::Batch batch;
    batch.n = n;
    batch.ids = at::empty({config.sequences, config.tokens}, at::kLong);
    batch.labels = at::empty_like(batch.ids);
    const auto count = static_cast<size_t>(batch.ids.numel());
    Batches(config)(n, false, {batch.ids.data_ptr<int64_t>(), count}, {batch.labels.data_ptr<int64_t>(), count});
    at::Tensor stream;
    double loss = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
      const std::vector<at::Tensor> views = stages[i]->Views(weights[i], true);
      const std::vector<at::Tensor> targets = stages[i]->Views(sums[i], false);
      for (size_t q = 0; q < views.size(); ++q) views[q].mutable_grad() = targets[q];
      if (i > 0) {
        stream = Wire::apply(stream, static_cast<int64_t>(config.codecs[i - 1]), static_cast<int64_t>(n),
                             static_cast<int64_t>(config.cuts[i - 1]));
      }
      stream = stages[i]->Forward(views, stream, batch, &loss);
    }
    stream.backward();
    return loss / static_cast<double>(count);
  }

  void Step(uint64_t t) {
    const uint32_t j_of_step = VersionRule(config.microbatches, config.j_table).JOf(t);
    std::vector<at::Tensor> sums;
    for (const at::Tensor& flat : now) sums.push_back(at::zeros_like(flat));
    double loss = 0;
    for (uint32_t j = 0; j < config.microbatches; ++j) {
      loss += Microbatch(t * config.microbatches + j, j < j_of_step ? before : now, sums);
    }
    losses.push_back(loss / config.microbatches);
    std::vector<double> norms;
    for (size_t i = 0; i < stages.size(); ++i) {
      const std::vector<double> part =
          StageOptimizer::SquareNorms(stages[i]->Views(sums[i], false), 1.0 / config.microbatches);
      norms.insert(norms.end(), part.begin(), part.end());
    }
    double square_sum = 0;
    for (const double norm : norms) square_sum += norm;
    const double clip = std::min(1.0, config.clip_norm / (std::sqrt(square_sum) + 1e-6));
    for (size_t i = 0; i < stages.size(); ++i) {
      optimizers[i]->Update(t, stages[i]->Views(now[i], false), stages[i]->Views(sums[i], false),
                            clip / config.microbatches, j_of_step > 0, false);
    }
    before = now;
    now = sums;
  }

  void ExpectEqual(const OracleResult& result) const {
    EXPECT_EQ(result.losses, losses);
    for (size_t i = 0; i < stages.size(); ++i) {
      const std::vector<at::Tensor> views = stages[i]->Views(now[i], false);
      for (size_t q = 0; q < views.size(); ++q) {
        const at::Tensor host = views[q].contiguous();
        EXPECT_EQ(result.state.at("w.0." + stages[i]->parameters()[q].name),
                  std::string(static_cast<const char*>(host.data_ptr()), host.nbytes()));
      }
    }
  }
};

TEST(Oracle, EqualsTextbookLoop) {
  for (const WireFormat format : {WireFormat::kFp32, WireFormat::kBf16, WireFormat::kInt8}) {
    for (const uint32_t j : {0u, 3u, 4u}) {
      RunConfig config = WithCuts(SmallRun(), {2, 4}, format);
      config.model.dropout = 0.1f;
      config.j_table = {{0, 0}};
      if (j > 0) config.j_table.push_back({2, j});
      config.optimizer.kind = j == 3 ? OptimizerKind::kMuon : OptimizerKind::kAdamW;
      config.optimizer.error_feedback = 0.5;
      const TextbookLoop loop(config);
      loop.ExpectEqual(Train(config));
    }
  }
}

TEST(Oracle, Fp32Cuts_ChangeNoBit) {
  for (const uint32_t j : {0u, 3u, 4u, 9u}) {
    RunConfig config = SmallRun();
    config.j_table = {{0, j}};
    config.clip_norm = 0.3;  // active
    const OracleResult whole = Train(config);
    EXPECT_LT(whole.clips[0][0], 1);
    for (const std::vector<uint32_t>& cuts : std::vector<std::vector<uint32_t>>{{2}, {4}, {3, 4}, {2, 3, 4}}) {
      const OracleResult cut = Train(WithCuts(config, cuts));
      EXPECT_EQ(cut.losses, whole.losses);
      EXPECT_EQ(cut.clips, whole.clips);
      EXPECT_EQ(cut.state, whole.state);
      EXPECT_EQ(cut.weight_hash, whole.weight_hash);
      EXPECT_EQ(cut.weights_sha256, whole.weights_sha256);
    }
    EXPECT_EQ(whole.weights_sha256.size(), config.model.num_units());
    EXPECT_EQ(whole.state.count("w.1.units.1.attention.q"), j > 0 ? 1u : 0u);
    EXPECT_EQ(whole.state.count("w.3.units.1.attention.q"), j > 8 ? 1u : 0u);
  }
}

TEST(Oracle, NaN_SkipsTheStepEverywhereAndKeepsTheState) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    for (const bool per_stage : {false, true}) {
      RunConfig config = WithCuts(SmallRun(), {2, 3}, WireFormat::kInt8);
      config.clip_per_stage = per_stage;
      config.optimizer.error_feedback = 1;
      OracleOptions before, after;
      before.stop_after = 3;
      after.stop_after = 4;
      after.inject_nan = {3 * config.microbatches + 1, stage};
      const OracleResult left = Train(config, before), right = Train(config, after);
      EXPECT_EQ(right.skipped_steps, std::vector<uint64_t>{3});
      EXPECT_TRUE(std::isnan(right.losses[3]));
      EXPECT_TRUE(std::isnan(right.square_sums[3]));
      EXPECT_EQ(left.state, right.state);
      EXPECT_EQ(left.weight_hash, right.weight_hash);
      // The schedule goes on: a run with the skip ends elsewhere than one without.
      after.stop_after = 0;
      const OracleResult on = Train(config, after);
      EXPECT_EQ(on.losses.size(), config.total_steps);
      EXPECT_TRUE(std::isfinite(on.losses.back()));
      EXPECT_NE(on.weight_hash, Train(config).weight_hash);
    }
  }
}

TEST(Oracle, StageWiseClip_UsesEachStagesOwnNorm) {
  RunConfig config = WithCuts(SmallRun(), {2, 3});
  config.clip_per_stage = true;
  config.clip_norm = 0.2;
  const OracleResult result = Train(config);
  ASSERT_EQ(result.clips[0].size(), 3u);
  EXPECT_NE(result.clips[0][0], result.clips[0][2]);
  config.clip_per_stage = false;
  config.clip_none = true;
  EXPECT_EQ(Train(config).clips[0], std::vector<double>{1.0});
}

TEST(Oracle, EarlierCuts_HoldForTheStepsBelowTheirEnd) {
  const RunConfig before = WithCuts(SmallRun(), {2, 4}, WireFormat::kInt8);
  const RunConfig after = WithCuts(SmallRun(), {3}, WireFormat::kInt8);
  RunConfig config = after;
  config.earlier_cuts = {{4, before.cuts, before.codecs, {}}};
  const OracleResult both = Train(config), first = Train(before), second = Train(after);
  EXPECT_EQ(std::vector<double>(both.losses.begin(), both.losses.begin() + 4),
            std::vector<double>(first.losses.begin(), first.losses.begin() + 4));
  EXPECT_NE(both.weight_hash, first.weight_hash);
  EXPECT_NE(both.weight_hash, second.weight_hash);
  config.earlier_cuts[0].end_step = 6;
  EXPECT_EQ(Train(config).state, first.state);
  config.earlier_cuts[0].end_step = 0;
  EXPECT_EQ(Train(config).state, second.state);
  // Two plans that end at the same step: the first one holds.
  config.earlier_cuts = {{6, before.cuts, before.codecs, {}}, {6, {2}, {WireFormat::kInt8}, {}}};
  EXPECT_EQ(Train(config).state, first.state);
}

TEST(Oracle, StageDelays_UseEachStagesOwnVersion) {
  RunConfig config = WithCuts(SmallRun(), {2, 3});
  config.microbatches = 1;
  config.clip_per_stage = true;
  const OracleResult synchronous = Train(config);
  config.stage_delays = {0, 0, 0};
  EXPECT_EQ(Train(config).state, synchronous.state);
  config.stage_delays = {2, 1, 0};
  const OracleResult delayed = Train(config);
  EXPECT_NE(delayed.weight_hash, synchronous.weight_hash);
  EXPECT_EQ(delayed.state.count("w.2.units.1.attention.q"), 1u);
  EXPECT_EQ(delayed.state.count("w.1.units.2.attention.q"), 1u);
  EXPECT_EQ(delayed.state.count("w.2.units.2.attention.q"), 0u);
  EXPECT_EQ(delayed.state.count("w.1.units.4.attention.q"), 0u);
}

TEST(Oracle, Evaluation_TakesPlaceWhenDueWithTheRightWeights) {
  RunConfig config = WithCuts(SmallRun(), {2});
  config.model.dropout = 0.2f;  // off in evaluation
  config.evaluation_every = 4;
  config.evaluation_microbatches = 3;
  config.j_table = {{0, 2}};
  const OracleResult result = Train(config);
  ASSERT_EQ(result.evaluations.size(), 2u);
  EXPECT_EQ(result.evaluations[0].after_step, 4u);
  EXPECT_EQ(result.evaluations[1].after_step, 6u);
  // After the last step: the newest weights, by hand.
  const StageModel model(config.model, config.seed, 0, config.model.num_units(), at::kCPU);
  at::Tensor flat = at::zeros({model.flat_size()}, at::kFloat);
  for (const ParameterInfo& info : model.parameters()) {
    const std::string& bytes = result.state.at("w.0." + info.name);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(flat.data_ptr<float>() + info.offset));
  }
  double sum = 0;
  for (uint64_t e = 0; e < 3; ++e) {
    StageModel::Batch batch;
    batch.training = false;
    batch.ids = at::empty({2, 8}, at::kLong);
    batch.labels = at::empty({2, 8}, at::kLong);
    Batches(config)(e, true, {batch.ids.data_ptr<int64_t>(), 16}, {batch.labels.data_ptr<int64_t>(), 16});
    double loss = 0;
    model.Forward(model.Views(flat, false), {}, batch, &loss);
    sum += loss;
  }
  EXPECT_EQ(result.evaluations[1].loss, sum / 48);
}

RunConfig LearningRun(uint64_t seed, OptimizerKind kind, uint64_t steps) {
  RunConfig config = WithCuts(SmallRun(), {2, 3});
  config.seed = seed;
  config.model.width = 32;
  config.model.rank = 8;
  config.model.feedforward = 64;
  config.sequences = 8;
  config.microbatches = 2;
  config.optimizer.kind = kind;
  config.optimizer.learning_rate = 5e-3;
  config.optimizer.warmup_steps = steps / 10;
  config.total_steps = config.optimizer.total_steps = steps;
  config.evaluation_microbatches = 8;
  return config;
}

TEST(Oracle, Learning_LossFallsTowardsTheNoise) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    RunConfig config = LearningRun(3, kind, 80);
    if (kind == OptimizerKind::kMuon) {
      config.j_table = {{0, 0}, {8, 2}};
      config.optimizer.error_feedback = 1;
    }
    const OracleResult result = Train(config);
    // ln 23 = 3.14 at the start; the noise of the rule alone costs 1.07 nats.
    EXPECT_GT(result.losses.front(), 2.9);
    EXPECT_LT(result.evaluations.back().loss, 1.6);
    EXPECT_GT(result.evaluations.back().loss, 0.9);
  }
}

TEST(Oracle, Int8Wire_CostsAtMostATenthOfAPercent) {
  double fp32 = 0, int8 = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const RunConfig config = LearningRun(seed, OptimizerKind::kAdamW, 60);
    fp32 += Train(config).evaluations.back().loss;
    int8 += Train(WithCuts(config, config.cuts, WireFormat::kInt8)).evaluations.back().loss;
  }
  EXPECT_NE(int8, fp32);
  EXPECT_LE(int8, fp32 * 1.001) << "fp32 " << fp32 / 3 << " int8 " << int8 / 3;
}

}  // namespace
}  // namespace stagecoach
