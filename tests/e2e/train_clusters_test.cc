// Several clusters in one run, with real processes: the bits are those of the single-process reference, whatever the
// links.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/train_run.h"

namespace stagecoach::testing {
namespace {

using std::chrono::seconds;

TinySpec TwoClusters() {
  TinySpec spec;
  spec.clusters = 2;
  spec.steps = 24;
  spec.every_steps = 6;
  spec.j = "2";
  spec.evaluation_every = 8;
  return spec;
}

// Every cluster ends with the same weights, those of the oracle.
void ExpectOneSetOfWeights(const nlohmann::json& report, const nlohmann::json& oracle) {
  ExpectSameBits(report, oracle);
  ASSERT_EQ(report["clusters"].size(), oracle["clusters"].size());
  for (size_t c = 0; c < report["clusters"].size(); ++c) {
    EXPECT_EQ(report["clusters"][c]["weight_hash"], report["clusters"][0]["weight_hash"]);
    EXPECT_EQ(report["clusters"][c]["weight_hash"], oracle["clusters"][c]["weight_hash"]);
  }
}

TEST(TrainClustersTest, TwoByTwo_IsTheOraclesOverThreeLinkProfiles) {
  TemporaryFolder folder;
  TrainRun run(folder, "run", TwoClusters());
  const nlohmann::json report = run.Train(4);
  ASSERT_EQ(report.value("steps", 0), 24);
  const nlohmann::json oracle = run.Oracle();
  ExpectOneSetOfWeights(report, oracle);
  EXPECT_EQ(report["tokens"], oracle["tokens"]);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(report["clusters"][c]["workers"].size(), 2u);
    EXPECT_EQ(report["clusters"][c]["steps"], 24);
    EXPECT_EQ(report["clusters"][c]["loss"], oracle["clusters"][c]["loss"].back());
  }
  EXPECT_EQ(report["averaging"]["rounds"], 4);
  for (const std::string links : {"10mbit/150ms", "80mbit/50ms/10ms", "1000mbit/10ms"}) {
    SCOPED_TRACE(links);
    std::string name = links;
    for (char& c : name) c = c == '/' ? '-' : c;
    TrainRun other(folder, name, TwoClusters());
    ExpectSameBits(other.Train(4, {"--links", links, "--like", run.dir()}), report);
  }
}

TEST(TrainClustersTest, Auto_NamesWhatWasComparedAndIsTheOracles) {
  TemporaryFolder folder;
  TrainRun run(folder, "run", TwoClusters());
  const nlohmann::json report = run.Train(4, {"--clusters", "auto"});
  EXPECT_TRUE(absl::StrContains(report["plan"].dump(), "1 cluster")) << report["plan"].dump(1);
  EXPECT_TRUE(absl::StrContains(report["plan"].dump(), "(chosen): predicted")) << report["plan"].dump(1);
  ExpectSameBits(report, run.Oracle());
  TrainRun other(folder, "other", TwoClusters());
  ExpectSameBits(other.Train(4, {"--clusters", "auto", "--like", run.dir()}), report);
  TrainRun third(folder, "third", TwoClusters());
  const ProgramResult many = RunProgram("stagecoach", third.Arguments(65, {"--clusters", "auto"}), seconds(30));
  EXPECT_EQ(many.exit_code, 64);
  EXPECT_TRUE(absl::StrContains(many.error, "at most 64 with --clusters auto")) << many.error;
}

struct RoundCase {
  std::string wire, outer;
  int workers, clusters, every_steps, delay_steps, steps;
  std::string schedule = "fd-2bw", j = "2";
};

class TrainRoundsTest : public ::testing::TestWithParam<RoundCase> {};

TEST_P(TrainRoundsTest, WeightsAreTheOracles) {
  const RoundCase& test = GetParam();
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.clusters = test.clusters;
  spec.averaging_wire = test.wire;
  spec.outer = test.outer;
  spec.every_steps = test.every_steps;
  spec.delay_steps = test.delay_steps;
  spec.steps = test.steps;
  spec.schedule = test.schedule;
  spec.j = test.j;
  TrainRun run(folder, "run", spec);
  const nlohmann::json report = run.Train(test.workers);
  ExpectOneSetOfWeights(report, run.Oracle());
  // At every multiple of H before the end, and at the end.
  EXPECT_EQ(report["averaging"]["rounds"], (test.steps - 1) / test.every_steps + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Rounds, TrainRoundsTest,
    ::testing::Values(RoundCase{"int8", "nesterov", 4, 2, 5, 3, 23}, RoundCase{"int4", "plain", 5, 2, 4, 1, 20},
                      // 5 workers in 3 clusters: pipelines of 2, 2 and 1, cut differently.
                      RoundCase{"bf16", "sgd", 5, 3, 5, 4, 18}, RoundCase{"fp32", "plain", 5, 3, 4, 0, 16},
                      // tau_a = 0 with old versions in use; the last round begins before the one before it has entered.
                      RoundCase{"int8", "plain", 4, 2, 3, 0, 12, "fd-2bw", "7"},
                      RoundCase{"int8", "plain", 4, 2, 8, 7, 18}, RoundCase{"fp32", "plain", 2, 2, 1, 0, 6},
                      RoundCase{"int8", "nesterov", 4, 2, 5, 2, 12, "gpipe", "auto"}),
    [](const auto& instance) {
      const RoundCase& test = instance.param;
      return absl::StrCat(test.wire, test.outer, test.workers, "w", test.clusters, "c", test.every_steps, "h",
                          test.delay_steps, "d");
    });

TEST(TrainRoundsTest, StoppedBetweenRounds_EndsWithOneSetOfWeights) {
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.outer = "nesterov";
  spec.delay_steps = 4;
  spec.checkpoint_every = 2;
  // Before a round has entered, at a round, and between two.
  for (const int end : {8, 12, 17}) {
    SCOPED_TRACE(end);
    TrainRun run(folder, absl::StrCat("run-", end), spec);
    const nlohmann::json report = run.Train(4, {"--stop-after", absl::StrCat(end)});
    EXPECT_EQ(report["checkpoint_step"], end);
    ExpectOneSetOfWeights(report, run.Oracle());
  }
}

TEST(TrainRoundsTest, Interrupted_EndsWithTheWeightsOfTheOracle) {
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.steps = 400000;
  spec.evaluation_every = 0;
  spec.checkpoint_every = 2;
  TrainRun run(folder, "run", spec);
  const auto program = run.Start(4);
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  program->Signal(SIGINT);
  program->Wait(seconds(60));
  const nlohmann::json report = run.Report();
  ASSERT_EQ(report.value("state", ""), "stopped");
  ExpectOneSetOfWeights(report, run.Oracle());
}

TEST(TrainRoundsTest, WorkerKilled_EndsTheRunWithItsName) {
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.steps = 400000;
  spec.evaluation_every = 0;
  TrainRun run(folder, "run", spec);
  const auto program = run.Start(4);
  ASSERT_TRUE(program->WaitForOutput("step ", seconds(60)));
  kill(run.WorkerPid("w3"), SIGKILL);
  const ProgramResult result = program->Wait(seconds(15));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_TRUE(absl::StrContains(result.output + result.error, "w3 (cluster 1, stage 1)"))
      << result.output << result.error;
  EXPECT_TRUE(WaitForNoProcessWith(run.dir() + "/", seconds(5)));
}

TEST(TrainRoundsTest, ImpossibleRounds_AreUsageErrors) {
  TemporaryFolder folder;
  const auto refused = [&](const std::string& name, const TinySpec& spec) {
    TrainRun run(folder, name, spec);
    const ProgramResult result = RunProgram("stagecoach", run.Arguments(4), seconds(30));
    EXPECT_EQ(result.exit_code, 64) << name;
    return result.error;
  };
  TinySpec late = TwoClusters();
  late.delay_steps = late.every_steps;
  EXPECT_TRUE(absl::StrContains(refused("late", late), "averaging.delay_steps"));
  TinySpec wire = TwoClusters();
  wire.averaging_wire = "fp16";
  EXPECT_TRUE(absl::StrContains(refused("wire", wire), "allowed: fp32, bf16, int8, int4"));
  TinySpec often = TwoClusters();
  often.checkpoint_every = 1;
  EXPECT_TRUE(absl::StrContains(refused("often", often), "checkpoint.every_steps"));
  TrainRun run(folder, "resume", TwoClusters());
  EXPECT_EQ(RunProgram("stagecoach", run.Arguments(4, {"--resume"}), seconds(30)).exit_code, 64);
}

TEST(TrainClustersTest, ImpossibleSplits_AreUsageErrors) {
  TemporaryFolder folder;
  TrainRun run(folder, "run", TwoClusters());
  const ProgramResult few = RunProgram("stagecoach", run.Arguments(1), seconds(30));
  EXPECT_EQ(few.exit_code, 64);
  EXPECT_TRUE(absl::StrContains(few.error, "clusters need at least as many --workers")) << few.error;
  const ProgramResult none = RunProgram("stagecoach", run.Arguments(4, {"--clusters", "0"}), seconds(30));
  EXPECT_EQ(none.exit_code, 64);
  TinySpec pipedream = TwoClusters();
  pipedream.schedule = "pipedream";
  pipedream.j = "auto";
  TrainRun other(folder, "other", pipedream);
  EXPECT_EQ(RunProgram("stagecoach", other.Arguments(4), seconds(30)).exit_code, 64);
}

}  // namespace
}  // namespace stagecoach::testing
