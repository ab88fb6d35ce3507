// Workers that die in the middle of a run that has checkpoints: it goes on with another plan, and the reference
// follows.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/train_run.h"

namespace stagecoach::testing {
namespace {

using std::chrono::seconds;

TinySpec ASpec() {
  TinySpec spec;
  spec.wire = "int8";
  spec.j = "2";
  spec.steps = 400;
  spec.checkpoint_every = 5;
  return spec;
}

// Kills `worker` as soon as a checkpoint is complete.
void KillBehindACheckpoint(const TrainRun& run, RunningProgram& program, const std::string& worker) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  bool there = false;
  while (!there && program.Running() && std::chrono::steady_clock::now() < end) {
    std::error_code ignored;
    for (const auto& folder : std::filesystem::directory_iterator(run.dir() + "/checkpoints", ignored)) {
      there |= std::filesystem::exists(folder.path() / "manifest.json");
    }
  }
  ASSERT_TRUE(there);
  kill(run.WorkerPid(worker), SIGKILL);
}

// The report of a run that lost `worker` and ended well.
nlohmann::json ExpectReplanned(const TrainRun& run, RunningProgram& program, const std::string& worker) {
  const ProgramResult result = program.Wait(seconds(180));
  EXPECT_EQ(result.exit_code, 0) << result.output << result.error;
  EXPECT_TRUE(absl::StrContains(result.error, "the run goes on without it")) << result.error;
  EXPECT_TRUE(WaitForNoProcessWith(run.dir() + "/", seconds(5)));
  nlohmann::json report = run.Report();
  EXPECT_EQ(report["replans"].size(), 1u) << report["replans"];
  if (report["replans"].size() != 1) return report;
  EXPECT_EQ(report["replans"][0]["lost_worker"], worker);
  EXPECT_TRUE(absl::StrContains(report["replans"][0]["reason"].get<std::string>(), "was lost"));
  EXPECT_GE(report["replans"][0]["from_step"].get<int>(), 5);
  EXPECT_EQ(report["recomputed_steps"], report["replans"][0]["recomputed_steps"]);
  EXPECT_EQ(report["first_step"], 0);
  return report;
}

TEST(TrainReplanTest, OneOfFourKilled_FinishesOnThreeWithTheBitsOfTheRecord) {
  TemporaryFolder folder;
  TrainRun run(folder, "run", ASpec());
  const auto program = run.Start(4, {"--stop-after", "380"});
  KillBehindACheckpoint(run, *program, "w1");
  const nlohmann::json report = ExpectReplanned(run, *program, "w1");
  EXPECT_EQ(report["steps"], 380);
  EXPECT_EQ(report["workers"].size(), 3u);
  ASSERT_EQ(report["loss"].size(), 380u);
  EXPECT_LT(report["loss"].back().get<double>(), report["loss"].front().get<double>());
  ExpectSameBits(report, run.Oracle());
  // The record knows both plans: the run is resumed with the newest one, and followed through both.
  const nlohmann::json rest = run.Train(3, {"--resume"});
  EXPECT_EQ(rest["steps"], 400);
  ExpectSameBits(rest, run.Oracle());
}

TEST(TrainReplanTest, OneOfTwoClustersLosesAStage_GoesOnWithTheBitsOfTheRecord) {
  TemporaryFolder folder;
  TinySpec spec = ASpec();
  spec.clusters = 2;
  spec.every_steps = 6;
  spec.delay_steps = 4;
  spec.averaging_wire = "int4";
  spec.outer = "nesterov";
  TrainRun run(folder, "run", spec);
  const auto program = run.Start(4);
  KillBehindACheckpoint(run, *program, "w3");
  const nlohmann::json report = ExpectReplanned(run, *program, "w3");
  EXPECT_EQ(report["clusters"][0]["workers"].size(), 2u);
  EXPECT_EQ(report["clusters"][1]["workers"].size(), 1u);
  const nlohmann::json oracle = run.Oracle();
  ExpectSameBits(report, oracle);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(report["clusters"][c]["weight_hash"], oracle["clusters"][c]["weight_hash"]) << "cluster " << c;
  }
}

TEST(TrainReplanTest, SwitchedOff_StopsTheRunWithItsName) {
  TemporaryFolder folder;
  TinySpec spec = ASpec();
  spec.steps = 1000000;
  spec.replan = "off";
  TrainRun run(folder, "run", spec);
  const auto program = run.Start(3);
  KillBehindACheckpoint(run, *program, "w1");
  const ProgramResult result = program->Wait(seconds(15));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(absl::StrContains(result.error, "worker w1 (stage 1) was lost")) << result.error;
  EXPECT_TRUE(WaitForNoProcessWith(run.dir() + "/", seconds(5)));
}

TEST(TrainReplanTest, LikeARunOfSeveralPlans_IsRefused) {
  TemporaryFolder folder;
  TrainRun run(folder, "run", ASpec());
  const auto program = run.Start(3);
  KillBehindACheckpoint(run, *program, "w2");
  ExpectReplanned(run, *program, "w2");
  TrainRun other(folder, "other", ASpec());
  const ProgramResult result = RunProgram("stagecoach", other.Arguments(3, {"--like", run.dir()}), seconds(60));
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_TRUE(absl::StrContains(result.error, "was planned anew at step")) << result.error;
}

}  // namespace
}  // namespace stagecoach::testing
