// Several clusters in one run, with real processes: the bits are those of the single-process reference, whatever the
// links.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

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

// Two sites, no worker with memory for the whole model, and a link between the sites that a pipeline would wait for.
TEST(TrainClustersTest, FleetFile_NoClusterCrossesTheSlowLink) {
  TemporaryFolder folder;
  const std::string fleet = folder.Write("fleet.yaml", R"(
workers:
  - {name: north, count: 2, region: north, memory_gib: 0.0024, up_mbit: 100}
  - {name: south, count: 2, region: south, memory_gib: 0.0024, up_mbit: 100}
regions:
  - {from: north, to: south, rtt_ms: 40, mbit: 1}
)");
  TinySpec spec = TwoClusters();
  spec.subspace = false;
  TrainRun run(folder, "run", spec);
  const nlohmann::json report = run.Train(4, {"--clusters", "auto", "--links", fleet});
  // On two cores one pipeline of two workers is as fast as two that share them, so either may be chosen.
  const std::string plan = report["plan"].dump(1);
  std::vector<std::string> clusters = {
      absl::StrCat(report["workers"][0]["name"].dump(), report["workers"][1]["name"].dump())};
  if (report.contains("clusters")) {
    clusters.clear();
    for (const nlohmann::json& cluster : report["clusters"]) clusters.push_back(cluster["workers"].dump());
  }
  for (const std::string& names : clusters) {
    EXPECT_NE(absl::StrContains(names, "north"), absl::StrContains(names, "south")) << names << plan;
  }
  EXPECT_TRUE(absl::StrContains(plan, "1 cluster")) << plan;
  EXPECT_TRUE(absl::StrContains(plan, "2 clusters")) << plan;
  ExpectSameBits(report, run.Oracle());
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

// The weights of every cluster are those of the oracle at the same step.
void ExpectTheOracles(const TrainRun& run, const nlohmann::json& report) {
  const nlohmann::json oracle = run.Oracle();
  ExpectSameBits(report, oracle);
  ASSERT_EQ(report["clusters"].size(), oracle["clusters"].size());
  for (size_t c = 0; c < report["clusters"].size(); ++c) {
    EXPECT_EQ(report["clusters"][c]["weight_hash"], oracle["clusters"][c]["weight_hash"]) << "cluster " << c;
  }
}

struct ResumeCase {
  std::string wire, outer;
  int delay_steps, checkpoint_every;
  std::vector<int> stops;  // rounds are at 6, 12, 18
};

std::string ManifestPath(const TrainRun& run, int step) {
  const std::string digits = absl::StrCat(step);
  return absl::StrCat(run.dir(), "/checkpoints/step-", std::string(9 - digits.size(), '0'), digits, "/manifest.json");
}

// Every file that both runs wrote at that step: weights, moments, common weights, outer momentum, residuals.
void ExpectSameCheckpoint(const TrainRun& run, const TrainRun& reference, int step) {
  SCOPED_TRACE(step);
  const nlohmann::json files = nlohmann::json::parse(ReadWholeFile(ManifestPath(run, step)))["files"];
  EXPECT_FALSE(files.empty());
  EXPECT_EQ(files, nlohmann::json::parse(ReadWholeFile(ManifestPath(reference, step)))["files"]);
}

class TrainRoundsResumeTest : public ::testing::TestWithParam<ResumeCase> {};

TEST_P(TrainRoundsResumeTest, StoppedAndResumed_IsTheUndisturbedRun) {
  const ResumeCase& test = GetParam();
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.averaging_wire = test.wire;
  spec.outer = test.outer;
  spec.delay_steps = test.delay_steps;
  spec.checkpoint_every = test.checkpoint_every;
  TrainRun whole(folder, "whole", spec);
  const nlohmann::json reference = whole.Train(4);
  TrainRun run(folder, "run", spec);
  std::vector<std::string> how = {"--like", whole.dir()};
  for (const int stop : test.stops) {
    SCOPED_TRACE(stop);
    how.insert(how.end(), {"--stop-after", absl::StrCat(stop)});
    const nlohmann::json report = run.Train(4, how);
    EXPECT_EQ(report["state"], "stopped");
    EXPECT_EQ(report["checkpoint_step"], stop);
    ExpectTheOracles(run, report);
    how = {"--resume"};
  }
  const nlohmann::json report = run.Train(4, how);
  EXPECT_EQ(report["first_step"], test.stops.back());
  ExpectSameBits(report, reference);
  ExpectOneSetOfWeights(report, run.Oracle());
  // Of the three that are kept the first two were written in the middle of the run.
  for (int back = 0; test.checkpoint_every > 0 && back < 3; ++back) {
    ExpectSameCheckpoint(run, whole, spec.steps - back * test.checkpoint_every);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TrainRoundsResumeTest,
                         ::testing::Values(
                             // Before the first round, at one, while one is open, when its result enters, between two.
                             ResumeCase{"fp32", "nesterov", 4, 0, {3, 6, 8, 10, 17}},
                             ResumeCase{"int8", "nesterov", 4, 2, {8, 15}},
                             ResumeCase{"int4", "sgd", 3, 1, {7, 13, 23}}, ResumeCase{"int8", "plain", 0, 3, {6, 13}}),
                         [](const auto& instance) {
                           return absl::StrCat(instance.param.wire, instance.param.outer, instance.param.delay_steps,
                                               "d");
                         });

TEST(TrainRoundsTest, Interrupted_CheckpointGoesOnToTheSameBits) {
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
  const nlohmann::json stopped = run.Report();
  ASSERT_EQ(stopped.value("state", ""), "stopped");
  ExpectTheOracles(run, stopped);
  const int next = stopped["checkpoint_step"].get<int>() + 15;
  ExpectTheOracles(run, run.Train(4, {"--resume", "--stop-after", absl::StrCat(next)}));
}

TEST(TrainRoundsTest, EverythingKilledAtAnyMoment_ResumesToTheSameBits) {
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.averaging_wire = "int4";
  spec.outer = "nesterov";
  spec.delay_steps = 4;
  spec.steps = 60;
  spec.checkpoint_every = 1;
  TrainRun whole(folder, "whole", spec);
  const nlohmann::json expected = whole.Train(4);
  TrainRun run(folder, "run", spec);
  const uint64_t seed = std::random_device()();
  std::cerr << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int life = 0; life < 3; ++life) {
    const auto program = run.Start(
        4, life == 0 ? std::vector<std::string>{"--like", whole.dir()} : std::vector<std::string>{"--resume"});
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    bool there = false;
    while (!there && program->Running() && std::chrono::steady_clock::now() < end) {
      for (int step = 4 + 15 * life; step <= spec.steps && !there; ++step) {
        there = std::filesystem::exists(ManifestPath(run, step));
      }
    }
    ASSERT_TRUE(there);
    // Anywhere in the steps, rounds and files that follow; which moment it was is in no report.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    for (const pid_t pid : ProcessesWith(run.dir())) kill(pid, SIGKILL);
    program->Wait(seconds(5));
    EXPECT_TRUE(WaitForNoProcessWith(run.dir() + "/", seconds(5)));
  }
  const nlohmann::json report = run.Train(4, {"--resume"});
  ExpectSameBits(report, expected);
  ExpectOneSetOfWeights(report, run.Oracle());
}

TEST(TrainRoundsTest, FlippedByte_IsNamedAndTheCheckpointBeforeItIsUsed) {
  TemporaryFolder folder;
  TinySpec spec = TwoClusters();
  spec.averaging_wire = "int8";
  spec.delay_steps = 4;
  spec.checkpoint_every = 4;
  TrainRun run(folder, "run", spec);
  ASSERT_EQ(run.Train(4, {"--stop-after", "8"})["checkpoint_step"], 8);
  const std::string file = run.dir() + "/checkpoints/step-000000008/cluster-1/layer-0003.safetensors";
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-1, std::ios::end);
    const char last = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(-1, std::ios::end);
    bytes.put(last);
    ASSERT_TRUE(bytes.good());
  }
  const nlohmann::json report = run.Train(4, {"--resume"});
  EXPECT_EQ(report["first_step"], 4);
  EXPECT_TRUE(absl::StrContains(report["plan"].dump(), "cluster-1/layer-0003.safetensors is damaged"));
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
  // Chunks of an exchange follow from the cuts of all clusters.
  TrainRun run(folder, "resume", TwoClusters());
  run.Train(4, {"--stop-after", "4"});
  const ProgramResult fewer = RunProgram("stagecoach", run.Arguments(3, {"--resume"}), seconds(60));
  EXPECT_EQ(fewer.exit_code, 64) << fewer.error;
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
