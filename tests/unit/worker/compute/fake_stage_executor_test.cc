#include "worker/compute/fake_stage_executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "common/checkpoint/safetensors.h"
#include "common/host_memory.h"
#include "tests/support/fake_reference.h"
#include "tests/support/local_pipeline.h"
#include "tests/support/scratch_folder.h"
#include "worker/compute/activation_memory.h"

namespace stagecoach {
namespace {

RunConfig AConfig(std::vector<uint32_t> cuts, uint32_t j) {
  RunConfig config;
  config.model.width = 16;
  config.model.layers = 4;
  config.model.vocabulary = 16;
  config.microbatches = 4;
  config.sequences = 2;
  config.tokens = 4;
  config.total_steps = config.optimizer.total_steps = 30;
  config.j_table = {{0, 0}, {5, j}};
  config.cuts = std::move(cuts);
  config.codecs.assign(config.cuts.size(), WireFormat::kInt8);
  config.evaluation_every = 10;
  config.evaluation_microbatches = 2;
  config.clip_norm = 1.5;
  return config;
}

LocalPipelineOptions Options(const RunConfig& config, uint64_t seed) {
  LocalPipelineOptions options;
  options.config = config;
  for (uint32_t i = 0; i < config.num_stages(); ++i) options.windows.push_back(config.num_stages() - i + 1);
  options.interleaving_seed = seed;
  options.create_executor = [](const ExecutorOptions& executor) -> absl::StatusOr<std::unique_ptr<StageExecutor>> {
    return CreateFakeExecutor(executor, FakeCosts{});
  };
  return options;
}

void ExpectSame(const LocalPipelineResult& pipeline, const FakeReferenceResult& reference, uint64_t steps) {
  EXPECT_EQ(pipeline.losses, reference.losses);
  EXPECT_EQ(pipeline.evaluations, reference.evaluations);
  for (const auto& [number, unit] : pipeline.checkpoints.at(steps)) {
    EXPECT_EQ(unit.weights_sha256, reference.weights_sha256[number]) << "unit " << number;
  }
}

TEST(FakeStageExecutor, AnyInterleaving_SameNumbersAsReference) {
  for (const uint32_t j : {0u, 3u, 4u, 9u}) {
    for (const auto& cuts : std::vector<std::vector<uint32_t>>{{}, {3}, {2, 3, 5}}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(absl::StrFormat("J=%u cuts=%d seed=%u", j, cuts.size(), seed));
        const RunConfig config = AConfig(cuts, j);
        const auto pipeline = RunLocalPipeline(Options(config, seed));
        ASSERT_TRUE(pipeline.ok()) << pipeline.status();
        ExpectSame(*pipeline, RunFakeReference(config, 30), 30);
      }
    }
  }
}

TEST(FakeStageExecutor, StageDelaysAndStageClip_SameNumbersAsReference) {
  RunConfig config = AConfig({2, 4}, 0);
  config.microbatches = 1;
  config.stage_delays = {4, 2, 0};
  config.clip_per_stage = true;
  const auto pipeline = RunLocalPipeline(Options(config, 1));
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  ExpectSame(*pipeline, RunFakeReference(config, 30), 30);
}

TEST(FakeStageExecutor, CheckpointOnOtherStages_SameNumbersAsUndisturbed) {
  RunConfig config = AConfig({3}, 3);
  config.checkpoint_every = 7;
  const auto whole = RunLocalPipeline(Options(config, 1));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const testing::ScratchFolder folder;
  for (const auto& [number, unit] : whole->checkpoints.at(14)) {
    std::vector<TensorEntry> entries;
    for (const auto& tensor : unit.tensors) entries.push_back({tensor.name, "F32", tensor.shape, tensor.bytes});
    const auto bytes = SerializeSafetensors(entries, unit.metadata);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    folder.Write(absl::StrFormat("layer-%04u.safetensors", number), *bytes);
  }
  config.cuts = {2, 4};
  config.codecs.assign(2, WireFormat::kFp32);
  LocalPipelineOptions options = Options(config, 2);
  options.first_step = 14;
  options.checkpoint_dir = folder.path();
  const auto rest = RunLocalPipeline(options);
  ASSERT_TRUE(rest.ok()) << rest.status();
  const FakeReferenceResult reference = RunFakeReference(config, 30);
  EXPECT_EQ(rest->losses, std::vector<double>(reference.losses.begin() + 14, reference.losses.end()));
  for (const auto& [number, unit] : rest->checkpoints.at(30)) {
    EXPECT_EQ(unit.weights_sha256, reference.weights_sha256[number]);
  }
  options.first_step = 7;
  EXPECT_EQ(RunLocalPipeline(options).status().code(), absl::StatusCode::kInvalidArgument) << "written after step 14";
}

TEST(FakeStageExecutor, DamagedPayload_Refused) {
  ExecutorOptions options;
  options.config = AConfig({3}, 0);
  options.window = 2;
  options.pool = HostBufferPool::Create(1 << 20);
  FakeStageExecutor first(options, {});
  auto output = first.Forward(Item{}, 0, {});
  ASSERT_TRUE(output.ok()) << output.status();
  auto damaged = *options.pool->Allocate(output->bytes->size());
  std::memcpy(damaged->bytes().data(), output->bytes->bytes().data(), damaged->size());
  damaged->bytes()[damaged->size() - 1] ^= 1;
  options.stage = 1;
  FakeStageExecutor last(options, {});
  const auto refused = last.ForwardBackward(Item{}, 0, 1, true, Payload{damaged});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(last.ForwardBackward(Item{}, 0, 1, true, *output).ok());
}

TEST(FakeStageExecutor, NonFiniteFrame_NormsAreNaNOnce) {
  ExecutorOptions options;
  options.config = AConfig({3}, 0);
  options.stage = 1;
  options.pool = HostBufferPool::Create(1 << 20);
  FakeStageExecutor last(options, {});
  auto zero = *options.pool->Allocate(EncodedBytes(WireFormat::kInt8, 8, 16));
  std::memset(zero->bytes().data(), 0, zero->size());
  const auto result = last.ForwardBackward(Item{}, 0, 1, true, Payload{zero, true});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::isnan(result->loss));
  EXPECT_TRUE(result->gradient.nonfinite);
  EXPECT_TRUE(std::isnan((*last.GradientNorms(0, 1))[0]));
  EXPECT_FALSE(std::isnan((*last.GradientNorms(1, 1))[0]));
}

TEST(ActivationMemory, Auto_RecomputesOnlyWhatDoesNotFit) {
  RunConfig config = AConfig({}, 0);
  config.recompute = RecomputeMode::kAuto;
  const uint64_t needed = 3 * 5 * BlockActivationBytes(config);
  EXPECT_FALSE(ChooseRecompute(config, 3, 5, needed * 8));
  EXPECT_TRUE(ChooseRecompute(config, 3, 5, needed * 8 - 8));
  config.recompute = RecomputeMode::kOff;
  EXPECT_FALSE(ChooseRecompute(config, 3, 5, 0));
  EXPECT_GT(AvailableMemoryBytes(), 0u);
}

}  // namespace
}  // namespace stagecoach
