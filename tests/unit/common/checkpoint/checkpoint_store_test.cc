#include "common/checkpoint/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "common/sha256.h"
#include "tests/unit/common/checkpoint/checkpoint_fixture.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CheckpointStoreTest, Commit_ReadsBackWithHash) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  const auto manifest = ReadManifest(run.path(), 10);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->files_size(), kFixtureUnits);
  EXPECT_EQ(manifest->losses(0), 5.25);
  EXPECT_TRUE(std::isnan(manifest->losses(1)));
  EXPECT_EQ(manifest->weight_hash(),
            Sha256Hex(manifest->files(0).weights_sha256() + manifest->files(1).weights_sha256() +
                      manifest->files(2).weights_sha256()));
  EXPECT_TRUE(VerifyCheckpoint(run.path(), *manifest).ok());
  EXPECT_THAT(CompleteCheckpoints(run.path()), ElementsAre(10));
}

TEST(CheckpointStoreTest, Commit_WithoutAFile_IsRefused) {
  testing::ScratchFolder run;
  auto manifest = WriteLayers(run.path(), 10, SystemFiles());
  ASSERT_TRUE(manifest.ok());
  std::filesystem::remove(CheckpointDir(run.path(), 10) + "/" + LayerFileName(1));
  const absl::Status status = CommitCheckpoint(run.path(), *manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer-0001.safetensors is missing"));
  EXPECT_THAT(CompleteCheckpoints(run.path()), ElementsAre());
}

TEST(CheckpointStoreTest, Commit_WithAWrongSizeOrUnit_IsRefused) {
  testing::ScratchFolder run;
  auto manifest = WriteLayers(run.path(), 10, SystemFiles());
  manifest->mutable_files(2)->set_bytes(1);
  EXPECT_FALSE(CommitCheckpoint(run.path(), *manifest).ok());
  auto swapped = WriteLayers(run.path(), 10, SystemFiles());
  swapped->mutable_files()->SwapElements(0, 1);
  EXPECT_FALSE(CommitCheckpoint(run.path(), *swapped).ok());
  auto layers = WriteLayers(run.path(), 10, SystemFiles());
  layers->mutable_record()->mutable_spec()->mutable_model()->set_layers(7);
  EXPECT_THAT(std::string(CommitCheckpoint(run.path(), *layers).message()), HasSubstr("7 layers, which has 9 units"));
}

TEST(CheckpointStoreTest, FlippedByte_IsNamedAndThePreviousOneUsed) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  ASSERT_TRUE(WriteACheckpoint(run.path(), 20).ok());
  const std::string name = "checkpoints/step-000000020/layer-0001.safetensors";
  std::string bytes = run.Read(name);
  bytes[bytes.size() / 2] ^= 1;
  run.Write(name, bytes);
  std::vector<std::string> rejected;
  const auto newest = NewestVerified(run.path(), &rejected);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->step(), 10u);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_THAT(rejected[0], HasSubstr("step 20"));
  EXPECT_THAT(rejected[0], HasSubstr("layer-0001.safetensors is damaged"));
}

TEST(CheckpointStoreTest, DamagedManifest_IsRejectedWithItsName) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  ASSERT_TRUE(WriteACheckpoint(run.path(), 20).ok());
  const std::string name = "checkpoints/step-000000020/manifest.json";
  const std::string good = run.Read(name);
  for (const std::string& bad : {good.substr(0, good.size() / 2), std::string(), std::string("[]")}) {
    run.Write(name, bad);
    std::vector<std::string> rejected;
    EXPECT_EQ(NewestVerified(run.path(), &rejected)->step(), 10u);
    ASSERT_EQ(rejected.size(), 1u);
    EXPECT_THAT(rejected[0], HasSubstr("manifest.json"));
  }
}

TEST(CheckpointStoreTest, ManifestThatPointsElsewhere_IsRefused) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  const std::string name = "checkpoints/step-000000010/manifest.json";
  std::string text = run.Read(name);
  const size_t at = text.find("layer-0001.safetensors");
  ASSERT_NE(at, std::string::npos);
  run.Write(name, text.replace(at, 22, "../../../../etc/passwd"));
  EXPECT_EQ(ReadManifest(run.path(), 10).status().code(), absl::StatusCode::kDataLoss);
}

TEST(CheckpointStoreTest, SymbolicLinkInPlaceOfALayer_IsRefused) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  const std::string layer = run.File("checkpoints/step-000000010/layer-0001.safetensors");
  std::filesystem::rename(layer, run.File("elsewhere"));
  std::filesystem::create_symlink(run.File("elsewhere"), layer);
  EXPECT_EQ(VerifyCheckpoint(run.path(), *ReadManifest(run.path(), 10)).code(), absl::StatusCode::kDataLoss);
}

// schedule.steps is limited to what fits.
TEST(CheckpointStoreTest, LossesOfTheLongestRun_Fit) {
  testing::ScratchFolder run;
  auto manifest = WriteLayers(run.path(), 2000000, SystemFiles());
  ASSERT_TRUE(manifest.ok());
  for (int step = 0; step < 2000000; ++step) manifest->add_losses(10 + 1.0 / (3 + step));  // 17 digits
  ASSERT_EQ(CommitCheckpoint(run.path(), *manifest), absl::OkStatus());
  EXPECT_EQ(ReadManifest(run.path(), 2000000)->losses_size(), 2000002);
}

TEST(CheckpointStoreTest, ManifestAboveTheLimit_IsNotRead) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  std::filesystem::resize_file(run.File("checkpoints/step-000000010/manifest.json"), (64u << 20) + 1);
  EXPECT_THAT(std::string(ReadManifest(run.path(), 10).status().message()), HasSubstr("more than the limit"));
}

TEST(CheckpointStoreTest, Prune_KeepsTheNewestAndClearsIncompleteOnes) {
  testing::ScratchFolder run;
  for (const uint64_t step : {10, 20, 30, 40}) ASSERT_TRUE(WriteACheckpoint(run.path(), step).ok());
  ASSERT_TRUE(WriteLayers(run.path(), 15, SystemFiles()).ok());
  ASSERT_TRUE(WriteLayers(run.path(), 50, SystemFiles()).ok());  // being written
  run.Write("checkpoints/notes.txt", "mine");
  ASSERT_TRUE(PruneCheckpoints(run.path(), 2).ok());
  EXPECT_THAT(CompleteCheckpoints(run.path()), ElementsAre(30, 40));
  EXPECT_FALSE(std::filesystem::exists(CheckpointDir(run.path(), 15)));
  EXPECT_TRUE(std::filesystem::exists(CheckpointDir(run.path(), 50)));
  EXPECT_EQ(run.Read("checkpoints/notes.txt"), "mine");
}

TEST(CheckpointStoreTest, Discard_RemovesWhatWasGivenUpAndNothingComplete) {
  testing::ScratchFolder run;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 2).ok());
  ASSERT_TRUE(WriteFileDurably(CheckpointDir(run.path(), 5), LayerFileName(0), "half").ok());
  EXPECT_EQ(DiscardIncomplete(run.path(), 2).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DiscardIncomplete(run.path(), 5), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(CheckpointDir(run.path(), 5)));
  EXPECT_THAT(CompleteCheckpoints(run.path()), ElementsAre(2));
}

TEST(CheckpointStoreTest, Prune_NeverDeletesTheLastThatVerifies) {
  testing::ScratchFolder run;
  for (const uint64_t step : {10, 20, 30, 40}) ASSERT_TRUE(WriteACheckpoint(run.path(), step).ok());
  for (const char* folder : {"step-000000030", "step-000000040"}) {
    run.Write(std::string("checkpoints/") + folder + "/layer-0000.safetensors", "damaged");
  }
  ASSERT_TRUE(PruneCheckpoints(run.path(), 2).ok());
  EXPECT_THAT(CompleteCheckpoints(run.path()), ElementsAre(20, 30, 40));
  EXPECT_EQ(NewestVerified(run.path(), nullptr)->step(), 20u);
}

TEST(CheckpointStoreTest, NoCheckpoints_IsNotFound) {
  testing::ScratchFolder run;
  EXPECT_EQ(NewestVerified(run.path(), nullptr).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(PruneCheckpoints(run.path(), 3).ok());
}

TEST(CheckpointStoreTest, RunRecord_RoundTrip) {
  testing::ScratchFolder run;
  RunRecord record;
  record.mutable_spec()->set_name("tiny");
  record.mutable_spec()->mutable_optimizer()->set_learning_rate(3e-4f);
  record.set_bigram_loss(2.4567891234567891);
  record.set_data_tokens(uint64_t{1} << 60);
  ASSERT_TRUE(WriteRunRecord(run.File("new/folder"), record).ok());
  const auto read = ReadRunRecord(run.File("new/folder"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), record.SerializeAsString()) << "every bit of every number";
  EXPECT_EQ(ReadRunRecord(run.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST(WriteFileDurablyTest, NamesThatLeaveTheFolder_AreRefused) {
  testing::ScratchFolder run;
  for (const char* name : {"", ".", "..", "../up", "a/b", "/etc/passwd", ".hidden", "a b", "a\n"}) {
    EXPECT_EQ(WriteFileDurably(run.path(), name, "x").status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

}  // namespace
}  // namespace stagecoach
