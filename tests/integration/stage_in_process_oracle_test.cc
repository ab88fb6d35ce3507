// O1, O2, O4, O6, O7, O9 of the oracle's table, in one process: pipelines of torch executors under the stage cores of
// the worker, in random interleavings, against the single-process reference. Every comparison is of bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/checkpoint/safetensors.h"
#include "common/counter_rng.h"
#include "model/data/token_dataset.h"
#include "model/oracle.h"
#include "tests/support/local_pipeline.h"
#include "tests/support/scratch_folder.h"

namespace stagecoach {
namespace {

constexpr uint32_t kVocabulary = 61;
constexpr uint32_t kM = 4;

class OraclePipeline : public ::testing::Test {
 protected:
  OraclePipeline() {
    std::string bytes;
    const CounterRng rng(3, RngPurpose::kTest, 1);
    uint16_t token = 0;
    for (uint64_t i = 0; i < 6000; ++i) {
      // Something to learn: the next token mostly follows the last one.
      const auto words = rng.Block(i);
      token = static_cast<uint16_t>(words[0] % 4 == 0 ? words[1] % kVocabulary : (token * 7 + 3) % kVocabulary);
      bytes.append(reinterpret_cast<const char*>(&token), sizeof(token));
    }
    path_ = folder_.Write("tokens.bin", bytes);
  }

  RunConfig Config(uint64_t steps, std::vector<uint32_t> cuts, uint32_t j) {
    RunConfig config;
    config.seed = 11;
    ModelConfig& model = config.model;
    model.width = 32;
    model.layers = 4;
    model.heads = 4;
    model.kv_heads = 2;
    model.feedforward = 48;
    model.vocabulary = 64;
    model.max_tokens = 16;
    config.microbatches = kM;
    config.sequences = 2;
    config.tokens = 16;
    config.total_steps = steps;
    config.optimizer.total_steps = steps;
    config.optimizer.warmup_steps = std::max<uint64_t>(1, steps / 10);
    config.optimizer.learning_rate = 3e-3;
    config.j_table = {{0, 0}};
    if (j > 0) config.j_table.push_back({steps / 10, j});
    config.optimizer.error_feedback = std::min(1.0, static_cast<double>(j) / kM);
    config.cuts = std::move(cuts);
    config.codecs.assign(config.cuts.size(), WireFormat::kFp32);
    config.evaluation_every = steps / 2;
    config.evaluation_microbatches = 2;
    config.data_path = path_;
    config.training_windows = 300;
    config.evaluation_windows = 20;
    return config;
  }

  static RunConfig WithSubspace(RunConfig config) {
    config.model.compression = Compression::kSubspace;
    config.model.norm = NormPlacement::kReordered;
    config.model.rank = 8;
    config.model.tail_layers = 1;
    return config;
  }

  OracleResult Oracle(const RunConfig& config, const OracleOptions& options = {}) {
    const auto data = TokenDataset::Open(config.data_path, false);
    EXPECT_TRUE(data.ok()) << data.status();
    return RunOracle(
        config,
        [&](uint64_t index, bool evaluation, absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
          if (evaluation) {
            ReadEvaluationMicrobatch(*data, config.training_windows, config.evaluation_windows, index, config.sequences,
                                     config.tokens, ids, labels);
          } else {
            ReadMicrobatch(*data, config.seed, config.training_windows, index, config.sequences, config.tokens, ids,
                           labels);
          }
        },
        options);
  }

  LocalPipelineOptions Options(const RunConfig& config, uint64_t seed = 1, uint32_t extra_window = 2) {
    LocalPipelineOptions options;
    options.config = config;
    for (uint32_t i = 0; i < config.num_stages(); ++i) {
      options.windows.push_back(config.num_stages() - i + extra_window);
    }
    options.interleaving_seed = seed;
    options.create_executor = CreateTorchExecutor;
    return options;
  }

  LocalPipelineResult Pipeline(const LocalPipelineOptions& options) {
    auto result = RunLocalPipeline(options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : LocalPipelineResult{};
  }

  static bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
  }

  // NaN losses of skipped steps may differ in sign and payload.
  static bool SameLosses(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
             return (x != x && y != y) || std::memcmp(&x, &y, sizeof(x)) == 0;
           });
  }

  static void ExpectSameState(const std::map<uint32_t, CheckpointUnit>& checkpoint, const OracleResult& oracle) {
    const auto state = StateOf(checkpoint);
    ASSERT_EQ(state.size(), oracle.state.size());
    for (const auto& [name, bytes] : oracle.state) {
      const auto found = state.find(name);
      ASSERT_NE(found, state.end()) << name;
      ASSERT_TRUE(found->second == bytes) << "bits differ: " << name;
    }
    ASSERT_EQ(checkpoint.size(), oracle.weights_sha256.size());
    for (const auto& [number, unit] : checkpoint) EXPECT_EQ(unit.weights_sha256, oracle.weights_sha256[number]);
  }

  static void ExpectSame(const LocalPipelineResult& pipeline, const OracleResult& oracle, uint64_t steps) {
    EXPECT_TRUE(SameLosses(pipeline.losses, oracle.losses));
    EXPECT_EQ(pipeline.skipped_steps, oracle.skipped_steps);
    EXPECT_EQ(pipeline.clips, oracle.clips);
    ASSERT_EQ(pipeline.evaluations.size(), oracle.evaluations.size());
    for (size_t i = 0; i < oracle.evaluations.size(); ++i) {
      EXPECT_EQ(pipeline.evaluations[i].first, oracle.evaluations[i].after_step);
      EXPECT_TRUE(SameLosses({pipeline.evaluations[i].second}, {oracle.evaluations[i].loss}));
    }
    ASSERT_EQ(pipeline.checkpoints.count(steps), 1u);
    ExpectSameState(pipeline.checkpoints.at(steps), oracle);
  }

  // Cuts for P = 1..4.
  static std::vector<uint32_t> Cuts(uint32_t stages) {
    return std::vector<std::vector<uint32_t>>{{}, {3}, {2, 4}, {2, 3, 4}}[stages - 1];
  }

  testing::ScratchFolder folder_;
  std::string path_;
};

// One reference serves every number of stages: with an fp32 wire the cuts change nothing.
TEST_F(OraclePipeline, O1_Fp32WireAnyJAndStages_SameBitsAsOracle) {
  constexpr uint64_t kSteps = 100;
  for (const uint32_t j : {0u, 3u, kM, 7u}) {
    const OracleResult oracle = Oracle(Config(kSteps, {}, j));
    EXPECT_LT(oracle.losses.back(), oracle.losses.front()) << "nothing was learned";
    for (uint32_t stages = 1; stages <= 4; ++stages) {
      SCOPED_TRACE("J=" + std::to_string(j) + " stages=" + std::to_string(stages));
      const LocalPipelineResult pipeline = Pipeline(Options(Config(kSteps, Cuts(stages), j), stages));
      ExpectSame(pipeline, oracle, kSteps);
      EXPECT_TRUE(SameBits(pipeline.square_sums, oracle.square_sums));
    }
  }
}

TEST_F(OraclePipeline, O1_SubspaceAndEveryOptimizer_SameBitsAsOracle) {
  constexpr uint64_t kSteps = 20;
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kMuon, OptimizerKind::kNAdam, OptimizerKind::kSgd}) {
    for (const uint32_t j : {0u, 3u}) {
      RunConfig config = WithSubspace(Config(kSteps, Cuts(3), j));
      config.optimizer.kind = kind;
      SCOPED_TRACE("optimizer=" + std::to_string(static_cast<int>(kind)) + " J=" + std::to_string(j));
      ExpectSame(Pipeline(Options(config)), Oracle(config), kSteps);
    }
  }
}

TEST_F(OraclePipeline, O2_Int8AndBf16WireWithDropout_SameBitsAsOracle) {
  constexpr uint64_t kSteps = 30;
  for (const bool subspace : {false, true}) {
    for (const WireFormat format : {WireFormat::kInt8, WireFormat::kBf16}) {
      for (const uint32_t j : {0u, 3u, 7u}) {
        RunConfig config = Config(kSteps, Cuts(j == 0 ? 2 : 4), j);
        if (subspace) config = WithSubspace(config);
        config.codecs.assign(config.cuts.size(), format);
        config.model.dropout = 0.1f;
        SCOPED_TRACE("subspace=" + std::to_string(subspace) + " format=" + std::to_string(static_cast<int>(format)) +
                     " J=" + std::to_string(j));
        ExpectSame(Pipeline(Options(config, j + 5)), Oracle(config), kSteps);
      }
    }
  }
}

TEST_F(OraclePipeline, O4_RecomputeWindowsAndOrder_ChangeNoBit) {
  constexpr uint64_t kSteps = 20;
  RunConfig config = WithSubspace(Config(kSteps, Cuts(4), 3));
  config.codecs.assign(config.cuts.size(), WireFormat::kInt8);
  config.model.dropout = 0.2f;
  const OracleResult oracle = Oracle(config);
  for (const RecomputeMode recompute : {RecomputeMode::kOn, RecomputeMode::kOff, RecomputeMode::kAuto}) {
    for (const uint32_t extra_window : {0u, 1u, 5u}) {
      const uint64_t seed = 21 + extra_window;
      config.recompute = recompute;
      SCOPED_TRACE("recompute=" + std::to_string(static_cast<int>(recompute)) +
                   " extra window=" + std::to_string(extra_window) + " seed=" + std::to_string(seed));
      ExpectSame(Pipeline(Options(config, seed, extra_window)), oracle, kSteps);
    }
  }
}

TEST_F(OraclePipeline, O6_ClipActive_EveryCutSameFactor) {
  constexpr uint64_t kSteps = 24;
  RunConfig config = Config(kSteps, {}, 3);
  // Half of the steps: the median of the norms of a run that is not clipped.
  config.clip_none = true;
  std::vector<double> norms = Oracle(config).square_sums;
  std::nth_element(norms.begin(), norms.begin() + kSteps / 2, norms.end());
  config.clip_none = false;
  config.clip_norm = std::sqrt(norms[kSteps / 2]);
  const OracleResult oracle = Oracle(config);
  const auto clipped = std::count_if(oracle.clips.begin(), oracle.clips.end(), [](const auto& c) { return c[0] < 1; });
  EXPECT_GT(clipped, kSteps / 5);
  EXPECT_LT(clipped, kSteps);
  for (const std::vector<uint32_t>& cuts : std::vector<std::vector<uint32_t>>{{}, {2}, {3}, {4}, {5}, {2, 3, 4, 5}}) {
    SCOPED_TRACE("cuts=" + std::to_string(cuts.size()));
    config.cuts = cuts;
    config.codecs.assign(cuts.size(), WireFormat::kFp32);
    ExpectSame(Pipeline(Options(config)), oracle, kSteps);
  }
}

TEST_F(OraclePipeline, O6_StageWiseAndNoClip_SameBitsAsOracle) {
  constexpr uint64_t kSteps = 12;
  for (const bool per_stage : {true, false}) {
    RunConfig config = Config(kSteps, Cuts(3), 3);
    config.clip_per_stage = per_stage;
    config.clip_none = !per_stage;
    config.clip_norm = 0.3;
    ExpectSame(Pipeline(Options(config)), Oracle(config), kSteps);
  }
}

TEST_F(OraclePipeline, O7_NonFiniteFrame_StepSkippedEverywhere) {
  constexpr uint64_t kSteps = 12;
  for (const uint32_t j : {0u, 3u}) {
    for (const uint32_t stage : {0u, 1u, 2u}) {
      RunConfig config = Config(kSteps, Cuts(4), j);
      config.codecs.assign(config.cuts.size(), WireFormat::kInt8);
      OracleOptions oracle_options;
      const uint64_t n = 6 * kM + stage;  // step 6
      oracle_options.inject_nan = {n, stage};
      LocalPipelineOptions options = Options(config, 31 + stage);
      options.inject_nonfinite = {n, stage};
      SCOPED_TRACE("J=" + std::to_string(j) + " stage=" + std::to_string(stage));
      const LocalPipelineResult pipeline = Pipeline(options);
      EXPECT_EQ(pipeline.skipped_steps, (std::vector<uint64_t>{6}));
      ExpectSame(pipeline, Oracle(config, oracle_options), kSteps);
    }
  }
}

// Real infinities, made by the model itself: nothing that was not finite may reach the weights.
TEST_F(OraclePipeline, O7_DivergedModel_EveryLaterStepSkipped) {
  constexpr uint64_t kSteps = 10;
  for (const uint32_t stages : {1u, 3u}) {
    RunConfig config = Config(kSteps, Cuts(stages), 0);
    config.optimizer.rate_schedule = RateSchedule::kConstant;
    config.optimizer.learning_rate = 1e30;
    const OracleResult oracle = Oracle(config);
    EXPECT_GE(oracle.skipped_steps.size(), 5u);
    ExpectSame(Pipeline(Options(config)), oracle, kSteps);
  }
}

TEST_F(OraclePipeline, O9_Baselines_SameBitsAsTheirOracles) {
  constexpr uint64_t kSteps = 24;
  {
    SCOPED_TRACE("gpipe");
    const RunConfig config = Config(kSteps, Cuts(4), 0);
    LocalPipelineOptions options = Options(config);
    options.policy = StagePolicy::kForwardsFirst;
    options.windows.assign(4, kM);
    ExpectSame(Pipeline(options), Oracle(config), kSteps);
  }
  {
    SCOPED_TRACE("sync-1f1b");
    const RunConfig config = Config(kSteps, Cuts(4), 0);
    ExpectSame(Pipeline(Options(config, 3, 0)), Oracle(config), kSteps);
  }
  {
    SCOPED_TRACE("2bw");
    RunConfig config = Config(kSteps, Cuts(4), kM);
    config.j_table = {{0, kM}};
    ExpectSame(Pipeline(Options(config)), Oracle(config), kSteps);
  }
  {
    SCOPED_TRACE("pipedream");
    RunConfig config = Config(kSteps, Cuts(4), 0);
    config.microbatches = 1;
    config.stage_delays = {5, 3, 2, 0};
    config.clip_per_stage = true;
    LocalPipelineOptions options = Options(config);
    options.windows = {6, 4, 3, 2};
    ExpectSame(Pipeline(options), Oracle(config), kSteps);
  }
}

TEST_F(OraclePipeline, Bf16Compute_SameBitsAsOracle) {
  constexpr uint64_t kSteps = 8;
  RunConfig config = Config(kSteps, Cuts(3), 3);
  config.model.compute = ComputeType::kBf16;
  config.model.architecture = Architecture::kGpt2;
  config.model.kv_heads = config.model.heads;
  ExpectSame(Pipeline(Options(config)), Oracle(config), kSteps);
}

// Writes the layer files of a checkpoint.
void WriteUnits(const std::string& dir, const std::map<uint32_t, CheckpointUnit>& units) {
  for (const auto& [number, unit] : units) {
    std::vector<TensorEntry> entries;
    for (const CheckpointTensor& tensor : unit.tensors) {
      entries.push_back({tensor.name, "F32", tensor.shape, tensor.bytes});
    }
    const auto bytes = SerializeSafetensors(entries, unit.metadata);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    std::filesystem::create_directories(dir);
    std::ofstream(absl::StrFormat("%s/layer-%04u.safetensors", dir, number), std::ios::binary) << *bytes;
  }
}

TEST_F(OraclePipeline, Checkpoint_ResumedOnAnyNumberOfStages_SameBitsAsUndisturbed) {
  constexpr uint64_t kSteps = 20;
  for (const auto& [j, kind] : std::vector<std::pair<uint32_t, OptimizerKind>>{
           {0, OptimizerKind::kAdamW}, {3, OptimizerKind::kMuon}, {7, OptimizerKind::kNAdam}}) {
    RunConfig config = Config(kSteps, Cuts(3), j);
    config.optimizer.kind = kind;
    config.checkpoint_every = 4;
    const OracleResult oracle = Oracle(config);
    const LocalPipelineResult whole = Pipeline(Options(config));
    ExpectSame(whole, oracle, kSteps);
    ASSERT_EQ(whole.checkpoints.size(), 5u);
    for (const uint32_t stages : {1u, 2u, 4u}) {
      const uint64_t from = 4 * stages;
      SCOPED_TRACE("J=" + std::to_string(j) + " stages=" + std::to_string(stages) + " from=" + std::to_string(from));
      const std::string dir = folder_.File("checkpoint-" + std::to_string(j) + "-" +
                                           std::to_string(static_cast<int>(kind)) + "-" + std::to_string(from));
      WriteUnits(dir, whole.checkpoints.at(from));
      RunConfig resumed = config;
      resumed.cuts = Cuts(stages);
      resumed.codecs.assign(resumed.cuts.size(), WireFormat::kFp32);
      LocalPipelineOptions options = Options(resumed, 5);
      options.first_step = from;
      options.checkpoint_dir = dir;
      const LocalPipelineResult rest = Pipeline(options);
      EXPECT_TRUE(SameBits(rest.losses, {oracle.losses.begin() + static_cast<int64_t>(from), oracle.losses.end()}));
      ExpectSameState(rest.checkpoints.at(kSteps), oracle);
    }
  }
}

TEST_F(OraclePipeline, Checkpoint_StoppedEarly_HoldsWhatTheOracleHasThen) {
  const RunConfig config = Config(20, Cuts(3), 7);
  LocalPipelineOptions options = Options(config);
  options.end_step = 9;
  OracleOptions oracle_options;
  oracle_options.stop_after = 9;
  ExpectSame(Pipeline(options), Oracle(config, oracle_options), 9);
}

TEST_F(OraclePipeline, Checkpoint_OlderVersionsMissing_SaysWhich) {
  RunConfig config = Config(8, {}, 0);
  const LocalPipelineResult whole = Pipeline(Options(config));
  const std::string dir = folder_.File("checkpoint");
  WriteUnits(dir, whole.checkpoints.at(8));
  config.total_steps = 16;
  config.j_table = {{0, 7}};
  LocalPipelineOptions options = Options(config);
  options.first_step = 8;
  options.checkpoint_dir = dir;
  const auto refused = RunLocalPipeline(options);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(refused.status().message()).find("J table"), std::string::npos) << refused.status();
}

}  // namespace
}  // namespace stagecoach
