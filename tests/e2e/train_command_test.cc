// `stagecoach train` with real processes: what users see, and what happens without a coordinator. Links, faults and the
// reference are in the other files of this folder.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;
using testing::ProgramResult;
using testing::StartProgram;

// Other tests may share the cores: limits of users' seconds are checked only where the text names them.
constexpr seconds kPatience(90);

class TrainCommandTest : public ::testing::Test {
 protected:
  std::vector<std::string> Arguments(const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "train",     "--config",       testing::SourceFolder() + "/examples/runs/tiny.yaml", "--data", Text(),
        "--run-dir", folder_.File(run)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  ProgramResult Train(const std::string& run, std::vector<std::string> more) {
    return testing::RunProgram("stagecoach", Arguments(run, std::move(more)), kPatience);
  }
  nlohmann::json Report(const std::string& run) {
    return nlohmann::json::parse(testing::ReadWholeFile(folder_.File(run + "/report.json")), nullptr, false);
  }
  std::string Text() {
    std::string text;
    for (int line = 0; line < 400; ++line) absl::StrAppend(&text, "line ", line, " of a text that repeats itself\n");
    return folder_.Write("text.txt", text);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(TrainCommandTest, TinyRun_ReportsEverythingAndLeavesNothing) {
  const ProgramResult result = Train("run", {"--links", "80mbit/50ms", "--report", folder_.File("copy.json")});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_TRUE(absl::StrContains(result.error, "step 20/20")) << result.error;
  EXPECT_FALSE(absl::StrContains(result.error, "\r"));  // plain lines: this is no terminal
  EXPECT_TRUE(absl::StrContains(result.output, "Run tiny finished after 20 steps")) << result.output;
  EXPECT_TRUE(absl::StrContains(result.output, "Sample of generated text")) << result.error;
  EXPECT_FALSE(testing::ReadWholeFile(folder_.File("run/sample.txt")).empty());
  const nlohmann::json report = Report("run");
  ASSERT_FALSE(report.is_discarded());
  EXPECT_EQ(testing::ReadWholeFile(folder_.File("copy.json")), testing::ReadWholeFile(folder_.File("run/report.json")));
  EXPECT_EQ(report["state"], "finished");
  EXPECT_EQ(report["steps"], 20);
  EXPECT_EQ(report["tokens"], 20 * 8 * 2 * 32);
  EXPECT_EQ(report["loss"].size(), 20u);
  EXPECT_LT(report["loss"].back(), report["loss"].front());
  EXPECT_EQ(report["weight_hash"].get<std::string>().size(), 64u);
  EXPECT_EQ(report["coordinator_tensor_bytes"], 0);
  EXPECT_EQ(report["skipped_steps"], 0);
  EXPECT_EQ(report["workers"].size(), 4u);
  EXPECT_GT(report["bigram_loss"], 0);
  EXPECT_GT(report["validation_loss"], 0);
  ASSERT_EQ(report["wire_bytes_per_token"].size(), 3u);
  for (const auto& boundary : report["wire_bytes_per_token"]) {
    EXPECT_GT(boundary["forward"], 8);   // k = 8 numbers of one byte
    EXPECT_LT(boundary["forward"], 16);  // scales, frame headers
    EXPECT_LT(boundary["backward"], 16);
  }
  EXPECT_TRUE(testing::WaitForNoProcessWith(folder_.path(), seconds(2)));
}

TEST_F(TrainCommandTest, KilledCoordinator_EndsTheRun) {
  const auto program = StartProgram("stagecoach", Arguments("run", {"--steps", "100000"}));
  ASSERT_NE(program, nullptr);
  ASSERT_TRUE(program->WaitForOutput("step ", kPatience));
  const std::vector<pid_t> coordinator = testing::ProcessesWith("--port-file " + folder_.File("run/ports/coordinator"));
  ASSERT_EQ(coordinator.size(), 1u);
  kill(coordinator[0], SIGKILL);
  const ProgramResult result = program->Wait(seconds(20));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(absl::StrContains(result.error, "coordinator ended with signal 9")) << result.error;
  const nlohmann::json report = Report("run");
  EXPECT_EQ(report["state"], "interrupted");
  EXPECT_TRUE(absl::StrContains(report["error"].get<std::string>(), "coordinator ended")) << report["error"];
  EXPECT_TRUE(testing::WaitForNoProcessWith(folder_.path(), seconds(2)));
}

}  // namespace
}  // namespace stagecoach
