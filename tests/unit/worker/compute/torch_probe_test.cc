#include <gtest/gtest.h>

#include "worker/compute/executor_factory.h"

namespace stagecoach {
namespace {

RunConfig AConfig(Compression compression) {
  RunConfig config;
  config.model.width = 32;
  config.model.layers = 6;
  config.model.heads = config.model.kv_heads = 4;
  config.model.feedforward = 48;
  config.model.vocabulary = 64;
  config.model.max_tokens = 16;
  config.model.compression = compression;
  config.model.rank = 8;
  config.model.tail_layers = 1;
  config.sequences = 2;
  config.tokens = 16;
  return config;
}

TEST(TorchProbe, EveryUnitKind_HasTimesAndItsOwnParameters) {
  for (const Compression compression : {Compression::kNone, Compression::kSubspace}) {
    const bool subspace = compression == Compression::kSubspace;
    const auto units = MeasureTorchUnits(AConfig(compression), "cpu");
    ASSERT_TRUE(units.ok()) << units.status();
    const uint64_t written = subspace ? 8 : 32;
    const uint64_t dense_part = 3 * 32 * 32 + 2 * 48 * 32 + 2 * 32;  // q, k, v, gate, up, two gains
    EXPECT_EQ(units->embedding.parameters, 64 * written);
    EXPECT_EQ(units->block.parameters, dense_part + written * 32 + written * 48);
    EXPECT_EQ(units->tail_block.parameters, dense_part + 32 * 32 + 32 * 48);
    EXPECT_EQ(units->head.parameters, 32u + 64 * 32);
    EXPECT_GT(units->block.forward_seconds, 0);
    EXPECT_GT(units->block.backward_seconds, units->block.forward_seconds);
    EXPECT_GT(units->block.update_seconds, 0);
    EXPECT_GT(units->block.activation_bytes, 0u);
  }
}

TEST(TorchProbe, UnknownDevice_Refused) {
  const auto units = MeasureTorchUnits(AConfig(Compression::kNone), "gpu7");
  EXPECT_EQ(units.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TorchFingerprint, DependsOnSeedAlone_EmptyWhenDense) {
  RunConfig config = AConfig(Compression::kSubspace);
  const auto one = TorchFingerprint(config);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->basis_sha256.size(), 64u);
  EXPECT_EQ(TorchFingerprint(config)->anchor_sha256, one->anchor_sha256);
  config.seed = 2;
  EXPECT_NE(TorchFingerprint(config)->basis_sha256, one->basis_sha256);
  EXPECT_EQ(TorchFingerprint(AConfig(Compression::kNone))->basis_sha256, "");
}

}  // namespace
}  // namespace stagecoach
