#include "worker/main/worker_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stagecoach {
namespace {

absl::StatusOr<WorkerFlags> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "stagecoach-worker");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseWorkerFlags(static_cast<int>(argv.size()), argv.data());
}

TEST(WorkerOptionsTest, Defaults) {
  const auto flags = Parse({"--coordinator", "127.0.0.1:7000"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->coordinator, "127.0.0.1:7000");
  EXPECT_EQ(flags->listen, "127.0.0.1:0");
  EXPECT_EQ(flags->device, "cpu");
  EXPECT_EQ(flags->executor, "torch");
  EXPECT_EQ(flags->threads, 1);
}

TEST(WorkerOptionsTest, Dial_IsRepeatable) {
  const auto flags = Parse({"--coordinator", "h:1", "--dial", "a=127.0.0.1:5", "--dial", "b-2=host:6"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->dial.at("a"), "127.0.0.1:5");
  EXPECT_EQ(flags->dial.at("b-2"), "host:6");
}

TEST(WorkerOptionsTest, FakeExecutor_TakesItsTimes) {
  const auto flags = Parse({"--coordinator", "h:1", "--executor", "fake:8/16.5"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->executor, "fake");
  EXPECT_DOUBLE_EQ(flags->fake_forward_ms, 8);
  EXPECT_DOUBLE_EQ(flags->fake_backward_ms, 16.5);
}

TEST(WorkerOptionsTest, UnusableFlags_AreNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--coordinator"},
      {{"--coordinator", "nowhere"}, "--coordinator"},
      {{"--coordinator", "h:70000"}, "--coordinator"},
      {{"--coordinator", "h:1", "--listen", "0.0.0.0:0"}, "--insecure"},
      {{"--coordinator", "h:1", "--listen", "x"}, "--listen"},
      {{"--coordinator", "h:1", "--name", "-bad"}, "--name"},
      {{"--coordinator", "h:1", "--name", "Bad"}, "--name"},
      {{"--coordinator", "h:1", "--device", "tpu"}, "--device"},
      {{"--coordinator", "h:1", "--threads", "0"}, "--threads"},
      {{"--coordinator", "h:1", "--dial", "a"}, "--dial"},
      {{"--coordinator", "h:1", "--executor", "real"}, "--executor"},
      {{"--coordinator", "h:1", "--executor", "fake:1"}, "--executor"},
      {{"--coordinator", "h:1", "--executor", "fake:-1/2"}, "--executor"},
      {{"--coordinator", "h:1", "--nonsense"}, "--nonsense"},
  };
  for (const auto& [arguments, named] : cases) {
    const auto flags = Parse(arguments);
    ASSERT_FALSE(flags.ok()) << named;
    EXPECT_NE(std::string(flags.status().message()).find(named), std::string::npos) << flags.status();
  }
}

TEST(WorkerOptionsTest, InsecureListen_IsAllowedWhenAsked) {
  EXPECT_TRUE(Parse({"--coordinator", "h:1", "--listen", "0.0.0.0:0", "--insecure"}).ok());
}

TEST(WorkerOptionsTest, Help_IsGiven) {
  const auto flags = Parse({"--help"});
  ASSERT_TRUE(flags.ok());
  EXPECT_NE(flags->help.find("--advertise"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
