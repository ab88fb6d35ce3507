// stagecoach-model as users call it, on a run folder made here: a record, data, and a checkpoint of the reference's
// state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "common/sha256.h"
#include "model/data/prepare_text.h"
#include "model/data/token_dataset.h"
#include "model/main/run_loading.h"
#include "model/oracle.h"
#include "model/stage_model.h"
#include "nlohmann/json.hpp"
#include "tests/support/process_harness.h"
#include "tests/support/scratch_folder.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::ScratchFolder;

constexpr uint32_t kSteps = 4;

std::string LayerFileName(uint32_t unit) { return absl::StrCat("layer-000", unit, ".safetensors"); }

// A subspace model with delayed weights: 2 blocks, J = 2, M = 3.
json ARecord(const std::string& data, const WindowSplit& split) {
  return {{"spec",
           {{"name", "tiny"},
            {"seed", 3},
            {"threads", 1},
            {"model",
             {{"architecture", "ARCHITECTURE_LLAMA"},
              {"width", 32},
              {"layers", 2},
              {"heads", 2},
              {"kv_heads", 1},
              {"feedforward", 64},
              {"vocabulary", 256},
              {"max_tokens", 16},
              {"norm", "NORM_REORDERED"},
              {"compression", "COMPRESSION_SUBSPACE"},
              {"rank", 8},
              {"tail_layers", 1},
              {"rope_theta", 10000},
              {"compute", "COMPUTE_TYPE_FP32"},
              {"norm_epsilon", 1e-5}}},
            {"data", {{"path", data}, {"validation_fraction", 0.1}}},
            {"optimizer",
             {{"kind", "OPTIMIZER_KIND_ADAMW"},
              {"learning_rate", 0.003},
              {"muon_learning_rate", 0.02},
              {"weight_decay", 0.1},
              {"muon_weight_decay", 0.01},
              {"beta1", 0.9},
              {"beta2", 0.95},
              {"epsilon", 1e-8},
              {"momentum", 0.95},
              {"rate_schedule", "RATE_SCHEDULE_COSINE"},
              {"warmup_steps", 1},
              {"clip", "CLIP_GLOBAL"},
              {"clip_norm", 1.0},
              {"error_feedback", 0}}},
            {"schedule",
             {{"kind", "SCHEDULE_KIND_FD_2BW"},
              {"steps", kSteps},
              {"microbatches", 3},
              {"sequences", 2},
              {"sequence_tokens", 16},
              {"j", 2},
              {"recompute", "RECOMPUTE_ON"}}},
            {"wire", {{"format", "WIRE_FORMAT_FP32"}}},
            {"evaluation", {{"every_steps", 0}, {"microbatches", 2}}},
            {"checkpoint", {{"keep", 3}}}}},
          {"j_table", {{{"from_step", 0}, {"j", 2}}}},
          {"cuts", {2}},
          {"codecs", {"WIRE_FORMAT_FP32"}},
          {"data_tokens", 0},
          {"training_windows", split.training},
          {"evaluation_windows", split.evaluation}};
}

class ModelProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the coach " + std::to_string(i) + " went over the hill\n";
    folder_.Write("t.txt", text);
    const auto prepared = PrepareText({{folder_.File("t.txt")}, folder_.File("data")});
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    split_ = *SplitWindows(prepared->tokens, 16, 0.1);
    folder_.Write("run/record.json", ARecord(folder_.File("data"), split_).dump());
  }

  OracleResult ReferenceResult() {
    const auto config = LoadRunConfig(folder_.File("run"));
    EXPECT_TRUE(config.ok()) << config.status();
    const auto data = TokenDataset::Open(config->data_path, true);
    ConfigureTorch(1);
    return RunOracle(*config, [&](uint64_t n, bool evaluation, absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
      if (evaluation) return ReadEvaluationMicrobatch(*data, split_.training, split_.evaluation, n, 2, 16, ids, labels);
      return ReadMicrobatch(*data, config->seed, split_.training, n, 2, 16, ids, labels);
    });
  }

  // Layer files as a worker writes them, with a manifest written by hand.
  void WriteCheckpoint(const OracleResult& result, uint64_t step) {
    const auto config = LoadRunConfig(folder_.File("run"));
    const StageModel model(config->model, config->seed, 0, config->model.num_units(), at::kCPU);
    json files = json::array();
    std::string hashes;
    for (uint32_t unit = 0; unit < config->model.num_units(); ++unit) {
      std::vector<TensorEntry> entries;
      for (const ParameterInfo& parameter : model.parameters()) {
        const std::string name = "w.0." + parameter.name;
        if (parameter.unit == unit) entries.push_back({name, "F32", parameter.shape, result.state.at(name)});
      }
      const std::string bytes = *SerializeSafetensors(entries, {{"step", std::to_string(step)}});
      folder_.Write(Folder(step) + LayerFileName(unit), bytes);
      files.push_back({{"unit", unit},
                       {"name", LayerFileName(unit)},
                       {"sha256", Sha256Hex(bytes)},
                       {"bytes", bytes.size()},
                       {"weights_sha256", result.weights_sha256[unit]}});
      hashes += result.weights_sha256[unit];
    }
    const json manifest = {{"format", 1}, {"step", step}, {"files", files}, {"weight_hash", Sha256Hex(hashes)}};
    folder_.Write(Folder(step) + "manifest.json", manifest.dump());
  }

  static std::string Folder(uint64_t step) { return absl::StrCat("run/checkpoints/step-00000000", step, "/"); }
  ProgramResult Run(std::vector<std::string> arguments) {
    return testing::RunProgram("stagecoach-model", std::move(arguments));
  }

  ScratchFolder folder_;
  WindowSplit split_;
};

TEST_F(ModelProgramTest, Oracle_ReportsTheReference) {
  const OracleResult reference = ReferenceResult();
  const ProgramResult result =
      Run({"oracle", "--run-dir", folder_.File("run"), "--report", folder_.File("new/oracle.json")});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const json report = json::parse(folder_.Read("new/oracle.json"));
  EXPECT_EQ(report["weight_hash"], reference.weight_hash);
  EXPECT_EQ(report["weights_sha256"].get<std::vector<std::string>>(), reference.weights_sha256);
  EXPECT_EQ(report["loss"].get<std::vector<double>>(), reference.losses) << "every bit of every loss";
  EXPECT_EQ(report["validation_loss"].get<double>(), reference.evaluations.back().loss);
  EXPECT_EQ(report["steps"], kSteps);
  EXPECT_EQ(report["tokens"], kSteps * 3 * 2 * 16);
  EXPECT_TRUE(report["skipped_steps"].empty());
}

TEST_F(ModelProgramTest, Oracle_StopsEarly) {
  const ProgramResult result = Run({"oracle", "--run-dir", folder_.File("run"), "--stop-after", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(json::parse(result.output)["loss"].size(), 2u);
}

TEST_F(ModelProgramTest, Eval_RepeatsTheLossOfTheRun) {
  const OracleResult reference = ReferenceResult();
  WriteCheckpoint(reference, 4);
  const ProgramResult result = Run({"eval", "--run-dir", folder_.File("run")});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const json report = json::parse(result.output);
  EXPECT_EQ(report["validation_loss"].get<double>(), reference.evaluations.back().loss) << "fp32 wire: to the bit";
  EXPECT_EQ(report["step"], 4);
  EXPECT_EQ(report["weight_hash"], reference.weight_hash);
  EXPECT_GT(report["bigram_loss"].get<double>(), 0);
  EXPECT_EQ(report["tokens"], 2 * 2 * 16);
}

TEST_F(ModelProgramTest, Eval_DamagedCheckpoint_UsesThePreviousOne) {
  const OracleResult reference = ReferenceResult();
  WriteCheckpoint(reference, 2);
  WriteCheckpoint(reference, 4);
  std::string bytes = folder_.Read(Folder(4) + LayerFileName(1));
  bytes[bytes.size() - 5] ^= 4;
  folder_.Write(Folder(4) + LayerFileName(1), bytes);
  const ProgramResult result = Run({"eval", "--run-dir", folder_.File("run")});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(json::parse(result.output)["step"], 2);
  EXPECT_THAT(result.error, HasSubstr("layer-0001.safetensors is damaged"));
  const ProgramResult chosen = Run({"eval", "--run-dir", folder_.File("run"), "--step", "4"});
  EXPECT_EQ(chosen.exit_code, 64);
  EXPECT_THAT(chosen.error, HasSubstr("layer-0001.safetensors is damaged"));
}

TEST_F(ModelProgramTest, Generate_ContinuesThePromptRepeatably) {
  WriteCheckpoint(ReferenceResult(), 4);
  const auto generate = [&](const std::string& seed) {
    return Run(
        {"generate", "--run-dir", folder_.File("run"), "--prompt", "the coach", "--tokens", "40", "--seed", seed});
  };
  const ProgramResult first = generate("1");
  ASSERT_EQ(first.exit_code, 0) << first.error;
  EXPECT_EQ(first.output.substr(0, 9), "the coach");
  EXPECT_GT(first.output.size(), 45u);
  EXPECT_EQ(generate("1").output, first.output);
  EXPECT_NE(generate("2").output, first.output);
}

TEST_F(ModelProgramTest, Bigram_AgreesWithTheLibrary) {
  const ProgramResult result = Run({"bigram", "--data", folder_.File("data"), "--sequence-tokens", "16", "--sequences",
                                    "2", "--microbatches", "2", "--validation-fraction", "0.1"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const json report = json::parse(result.output);
  EXPECT_EQ(report["training_windows"], split_.training);
  EXPECT_EQ(report["bigram_loss"].get<double>(),
            BigramLoss(*TokenDataset::Open(folder_.File("data"), true), split_, 2, 16, 2));
}

TEST_F(ModelProgramTest, ExitCodes_SayWhatWentWrong) {
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
  EXPECT_EQ(Run({}).exit_code, 64);
  EXPECT_EQ(Run({"eval"}).exit_code, 64);
  EXPECT_EQ(Run({"eval", "--no-such-flag", "--run-dir", "x"}).exit_code, 64);
  EXPECT_EQ(Run({"generate", "--run-dir", "x", "--tokens", "-3"}).exit_code, 64);
  const ProgramResult missing = Run({"eval", "--run-dir", folder_.File("nowhere")});
  EXPECT_EQ(missing.exit_code, 64);
  EXPECT_THAT(missing.error, HasSubstr("nowhere"));
  EXPECT_EQ(Run({"generate", "--run-dir", folder_.File("run")}).exit_code, 64) << "no checkpoint yet";
  const ProgramResult text = Run({"bigram", "--data", folder_.File("t.txt"), "--sequence-tokens", "16"});
  EXPECT_EQ(text.exit_code, 64);
  EXPECT_THAT(text.error, HasSubstr("stagecoach-model prepare"));
  folder_.Write("broken/record.json", "{");
  EXPECT_EQ(Run({"oracle", "--run-dir", folder_.File("broken")}).exit_code, 64);
}

}  // namespace
}  // namespace stagecoach
