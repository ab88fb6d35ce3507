// Several clusters in one run, with real processes: the bits are those of the single-process reference, whatever the
// links.
#include <gtest/gtest.h>

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
  return spec;
}

TEST(TrainClustersTest, TwoByTwo_IsTheOraclesAndReportsEachCluster) {
  TemporaryFolder folder;
  TrainRun run(folder, "run", TwoClusters());
  const nlohmann::json report = run.Train(4);
  ASSERT_EQ(report.value("steps", 0), 24);
  const nlohmann::json oracle = run.Oracle();
  ExpectSameBits(report, oracle);
  EXPECT_EQ(report["tokens"], oracle["tokens"]);
  ASSERT_EQ(report["clusters"].size(), 2u);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(report["clusters"][c]["weight_hash"], oracle["clusters"][c]["weight_hash"]);
    EXPECT_EQ(report["clusters"][c]["workers"].size(), 2u);
    EXPECT_EQ(report["clusters"][c]["steps"], 24);
    EXPECT_EQ(report["clusters"][c]["loss"], oracle["clusters"][c]["loss"].back());
  }
  // Other links: the same bits.
  TrainRun slow(folder, "slow", TwoClusters());
  ExpectSameBits(slow.Train(4, {"--links", "80mbit/50ms", "--like", run.dir()}), report);
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
