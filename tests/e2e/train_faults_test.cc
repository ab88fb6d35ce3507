// Stopping, resuming and killing real runs: nothing hangs, nothing is left behind, and what goes on ends with the bits
// of the run that was not disturbed.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/train_run.h"

namespace stagecoach::testing {
namespace {

using std::chrono::seconds;

TinySpec ASpec() {
  TinySpec spec;
  spec.j = "4";
  spec.steps = 40;
  spec.evaluation_every = 10;
  return spec;
}

// A run that lasts until it is stopped.
TinySpec AnEndlessSpec() {
  TinySpec spec = ASpec();
  spec.steps = 1000000;
  spec.evaluation_every = 0;
  return spec;
}

class TrainFaultsTest : public ::testing::Test {
 protected:
  void ExpectNothingLeft(const TrainRun& run, seconds deadline) {
    EXPECT_TRUE(WaitForNoProcessWith(run.dir() + "/", deadline)) << "processes of " << run.dir() << " are left";
  }
  // All processes of the run but the one of the test itself, killed at once.
  static void KillAll(const TrainRun& run) {
    for (const pid_t pid : ProcessesWith(run.dir())) kill(pid, SIGKILL);
  }

  TemporaryFolder folder_;
};

TEST_F(TrainFaultsTest, StopAfterAndResume_EqualTheRunThatWasNotStopped) {
  TrainRun whole(folder_, "whole", ASpec());
  const nlohmann::json expected = whole.Train(3);
  TrainRun parts(folder_, "parts", ASpec());
  const nlohmann::json first = parts.Train(3, {"--like", whole.dir(), "--stop-after", "17"});
  EXPECT_EQ(first["checkpoint_step"], 17);
  ExpectSameBits(parts.Train(3, {"--resume"}), expected);
  ExpectSameBits(parts.Oracle(), expected);
}

TEST_F(TrainFaultsTest, ResumeOnAnotherNumberOfStages_GivesTheSameBits) {
  TrainRun whole(folder_, "whole", ASpec());
  const nlohmann::json expected = whole.Train(3);
  TrainRun parts(folder_, "parts", ASpec());
  parts.Train(3, {"--like", whole.dir(), "--stop-after", "10"});
  parts.Train(2, {"--resume", "--stop-after", "20"});
  parts.Train(4, {"--resume", "--stop-after", "30"});
  ExpectSameBits(parts.Train(1, {"--resume"}), expected);
}

TEST_F(TrainFaultsTest, WorkerKilled_StopsTheRunWithItsName) {
  TrainRun run(folder_, "run", AnEndlessSpec());
  const auto program = run.Start(3);
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  kill(run.WorkerPid("w1"), SIGKILL);
  const ProgramResult result = program->Wait(seconds(15));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE((result.output + result.error).find("w1"), std::string::npos) << result.output << result.error;
  ExpectNothingLeft(run, seconds(5));
}

TEST_F(TrainFaultsTest, WorkerFrozen_StopsTheRunWithItsName) {
  TrainRun run(folder_, "run", AnEndlessSpec());
  const auto program = run.Start(3);
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  kill(run.WorkerPid("w1"), SIGSTOP);
  const ProgramResult result = program->Wait(seconds(15));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE((result.output + result.error).find("w1"), std::string::npos) << result.output << result.error;
  ExpectNothingLeft(run, seconds(5));
}

TEST_F(TrainFaultsTest, EmulatorFrozen_EndsTheRunAndIsNamed) {
  TrainRun run(folder_, "run", AnEndlessSpec());
  const auto program = run.Start(3, {"--links", "80mbit/50ms"});
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  const std::vector<pid_t> emulator = ProcessesWith("--port-file " + run.dir() + "/ports/linkem");
  ASSERT_EQ(emulator.size(), 1u);
  kill(emulator[0], SIGSTOP);
  const ProgramResult result = program->Wait(seconds(20));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.error.find("linkem is stopped"), std::string::npos) << result.error;
  ExpectNothingLeft(run, seconds(5));
}

TEST_F(TrainFaultsTest, EverythingKilledWhileCheckpointing_ResumesToTheSameBits) {
  TinySpec spec = ASpec();
  spec.checkpoint_every = 1;
  spec.steps = 100;
  TrainRun whole(folder_, "whole", spec);
  const nlohmann::json expected = whole.Train(3);
  TrainRun run(folder_, "run", spec);
  const uint64_t seed = std::random_device()();
  std::cerr << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int life = 0; life < 3; ++life) {
    std::vector<std::string> more = {"--resume"};
    if (life == 0) more = {"--like", whole.dir()};
    const auto program = run.Start(3, more);
    // From the moment a later checkpoint is there, at any point of writing the next ones.
    const int wanted = 4 + 20 * life;
    const auto path = [&](int step) {
      std::string digits = absl::StrCat(step);
      return run.dir() + "/checkpoints/step-" + std::string(9 - digits.size(), '0') + digits + "/manifest.json";
    };
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    bool there = false;
    while (!there && program->Running() && std::chrono::steady_clock::now() < end) {
      for (int step = wanted; step <= spec.steps && !there; ++step) there = std::filesystem::exists(path(step));
    }
    const auto delay = std::chrono::microseconds(random() % 20000);
    const auto until = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < until) {
    }
    KillAll(run);
    program->Wait(seconds(5));
    ExpectNothingLeft(run, seconds(5));
  }
  ExpectSameBits(run.Train(3, {"--resume"}), expected);
}

TEST_F(TrainFaultsTest, Interrupt_LeavesACheckpointAndNoProcess) {
  TrainRun run(folder_, "run", AnEndlessSpec());
  const auto program = run.Start(4, {"--links", "80mbit/50ms"});
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  program->Signal(SIGINT);
  const ProgramResult result = program->Wait(seconds(10));
  const nlohmann::json report = run.Report();
  ASSERT_TRUE(report.contains("checkpoint_step")) << result.output << result.error;
  const int stopped = report["checkpoint_step"].get<int>();
  EXPECT_GT(stopped, 0);
  EXPECT_EQ(report["steps"], stopped);
  ExpectNothingLeft(run, seconds(2));
  ExpectSameBits(report, run.Oracle());
  const nlohmann::json more = run.Train(4, {"--resume", "--stop-after", absl::StrCat(stopped + 5)});
  EXPECT_EQ(more["steps"], stopped + 5);
  ExpectSameBits(more, run.Oracle());
}

TEST_F(TrainFaultsTest, TrainKilled_LeavesNoWorker) {
  TrainRun run(folder_, "run", AnEndlessSpec());
  const auto program = run.Start(4, {"--links", "80mbit/50ms"});
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  program->Signal(SIGKILL);
  program->Wait(seconds(5));
  ExpectNothingLeft(run, seconds(10));
}

}  // namespace
}  // namespace stagecoach::testing
