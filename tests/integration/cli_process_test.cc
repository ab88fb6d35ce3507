// Child processes, and the command line of the built program.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/process/child_process.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;
using testing::ProgramResult;
using testing::RunProgram;
using testing::StartProgram;

ChildOptions Shell(const std::string& script) {
  ChildOptions options;
  options.name = "shell";
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  return options;
}

TEST(ChildProcessTest, Exit_IsReported) {
  auto child = ChildProcess::Start(Shell("exit 3"));
  ASSERT_TRUE(child.ok()) << child.status();
  const auto end = (*child)->WaitFor(absl::Seconds(20));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->ToString(), "exit status 3");
}

TEST(ChildProcessTest, MissingProgram_IsNamed) {
  ChildOptions options;
  options.program = "/nonexistent/program";
  const auto child = ChildProcess::Start(options);
  EXPECT_TRUE(absl::IsNotFound(child.status()));
  EXPECT_TRUE(absl::StrContains(child.status().message(), "/nonexistent/program"));
}

TEST(ChildProcessTest, UnusableProgram_IsAnError) {
  testing::TemporaryFolder folder;
  ChildOptions options;
  options.name = "broken";
  options.program = folder.Write("broken", "not a program");
  ASSERT_EQ(chmod(options.program.c_str(), 0755), 0);
  EXPECT_FALSE(ChildProcess::Start(options).ok());
}

TEST(ChildProcessTest, OutputAndEnvironment_GoWhereTheyShould) {
  testing::TemporaryFolder folder;
  ChildOptions options = Shell("echo \"$STAGECOACH_TEST_WORD\"; echo complaint >&2");
  options.log_path = folder.File("log");
  options.output_path = folder.File("out");
  options.environment = {{"STAGECOACH_TEST_WORD", "hello"}};
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok());
  (*child)->WaitFor(absl::Seconds(20));
  EXPECT_EQ(testing::ReadWholeFile(folder.File("out")), "hello\n");
  EXPECT_EQ(LastLines(folder.File("log"), 5), "complaint");
}

TEST(ChildProcessTest, StubbornChildren_AreKilledAfterTheGrace) {
  testing::TemporaryFolder folder;
  std::vector<std::unique_ptr<ChildProcess>> children;
  children.push_back(
      *ChildProcess::Start(Shell("trap '' TERM; touch " + folder.File("ready") + "; while :; do sleep 0.05; done")));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (access(folder.File("ready").c_str(), F_OK) != 0 && absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(5));
  StopChildren(children, SIGTERM, absl::Milliseconds(100));
  const auto end = children[0]->Poll();
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->signaled);
  EXPECT_EQ(end->code, SIGKILL);
}

TEST(ChildProcessTest, KilledParent_LeavesNoChild) {
  const char* tests_folder = getenv("STAGECOACH_TESTS");
  ASSERT_NE(tests_folder, nullptr) << "run the test through ctest";
  const auto parent = StartProgram(std::string(tests_folder) + "/parent_of_sleeper", {});
  ASSERT_NE(parent, nullptr);
  ASSERT_TRUE(parent->WaitForOutput("\n", seconds(20)));
  const pid_t child = atoi(parent->Output().c_str() + sizeof("child"));
  ASSERT_GT(child, 0);
  ASSERT_EQ(kill(child, 0), 0);
  kill(parent->pid(), SIGKILL);  // the process alone, not its group
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  // Gone, or a zombie that waits for init.
  std::string state;
  do {
    state = testing::ReadWholeFile("/proc/" + std::to_string(child) + "/stat");
    absl::SleepFor(absl::Milliseconds(5));
  } while (!state.empty() && !absl::StrContains(state, ") Z ") && absl::Now() < deadline);
  EXPECT_TRUE(state.empty() || absl::StrContains(state, ") Z ")) << state;
}

TEST(CommandLineTest, UsageErrors_SayWhatIsWrongAndExit64) {
  testing::TemporaryFolder folder;
  const std::string spec = folder.Write("run.yaml", "name: x\nmodel: {widht: 64}\n");
  folder.Write("record.json", absl::StrCat(R"({"spec": {"name": "x", "seed": "1", "run_dir": ")", folder.path(),
                                           R"(", "model": {"width": 64, "layers": 2, "heads": 4}, "data": {"path": ")",
                                           folder.path(), R"("}, "schedule": {"steps": "10", "sequences": 1,)",
                                           R"("sequence_tokens": 16}, "wire": {"format": "WIRE_FORMAT_INT8"}}})"));
  const std::string good = folder.Write(
      "good.yaml",
      absl::StrCat("seed: 3\nrun_dir: ", folder.path(), "\nmodel: {width: 64, layers: 2, heads: 4}\n",
                   "data: {path: ", folder.path(), "}\nschedule: {steps: 10, sequences: 1, sequence_tokens: 16}\n"));
  const std::string two_documents = folder.Write("two.yaml", "seed: 3\n---\nseed: 4\n");
  const std::string text_data =
      folder.Write("text.yaml", absl::StrCat("run_dir: ", folder.path(), "\nmodel: {width: 64, layers: 2, heads: 4}\n",
                                             "data: {path: ", spec,
                                             "}\nschedule: {steps: 10, sequences: 1, sequence_tokens: 16}\n"));
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{}, "A subcommand is required"},
      {{"trian"}, "trian"},
      {{"train"}, "--config FILE is missing"},
      {{"train", "--config", folder.File("none.yaml")}, "none.yaml"},
      {{"train", "--config", spec}, "run.yaml:2: model.widht"},
      {{"train", "--config", spec, "--workers", "many"}, "many"},
      {{"train", "--config", spec, "--workers", "0"}, "--workers: Value 0 not in range 1 to 256"},
      {{"train", "--resume"}, "--run-dir"},
      {{"train", "--like", folder.File("nothing")}, "there is no run in"},
      {{"train", "--config", good, "--run-dir", ""}, "--run-dir: must not be empty"},
      {{"train", "--config", good, "--stop-after", "-1"}, "--stop-after"},
      {{"train", "--config", good, "--run-dir", folder.File("new"), "--report", folder.File("none/report.json")},
       "--report: cannot write"},
      {{"train", "--config", two_documents}, "two.yaml:3: a second document"},
      {{"submit", good, "--coordinator", "127.0.0.1:99999"}, "not host:port with a port of 0..65535: 127.0.0.1:99999"},
      {{"submit", text_data, "--coordinator", "127.0.0.1:1"}, "is text; `stagecoach-model prepare "},
      {{"train", "--resume", "--run-dir", folder.path(), "--seed", "2"}, "seed: 2 contradicts the record"},
      {{"train", "--like", folder.path(), "--run-dir", folder.File("new"), "--wire", "fp32"},
       "wire.format: fp32 contradicts the record of the earlier run, which has int8; leave it out"},
      {{"submit", good, "--resume", "--coordinator", "127.0.0.1:1"}, "seed: 3 contradicts the record"},
      {{"submit", spec}, "--coordinator is required"},
      {{"submit", spec, "--coordinator", "127.0.0.1:1"}, "run.yaml:2: model.widht"},
      {{"status", "--coordinator", "127.0.0.1:1", "-o", "xml"}, "xml"},
      {{"linkem"}, "no links"},
      {{"linkem", "--link", "a:b", "--profile", "80mbit/50ms"}, "--link: 'a:b' is not"},
      {{"linkem", "--link", "a:b=127.0.0.1:0->127.0.0.1:5", "--profile", "80/50"}, "link profile '80/50'"},
  };
  for (const Case& wrong : cases) {
    const ProgramResult result = RunProgram("stagecoach", wrong.arguments);
    EXPECT_EQ(result.exit_code, 64) << wrong.message;
    EXPECT_TRUE(absl::StrContains(result.error, wrong.message)) << result.error;
    EXPECT_EQ(result.output, "") << wrong.message;
  }
}

TEST(CommandLineTest, ValuesOfTrain_AreCheckedBeforeAnythingStarts) {
  testing::TemporaryFolder folder;
  const std::string text = folder.Write("text.txt", std::string(5000, 'a'));
  const std::string spec = folder.Write("run.yaml",
                                        "model: {width: 64, layers: 4, heads: 4}\n"
                                        "schedule: {steps: 3, sequences: 2, sequence_tokens: 32}\n");
  const std::string run_dir = folder.File("run");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--steps", "0"}, "--steps: schedule.steps"},
      {{"--schedule", "fast"}, "--schedule: schedule.kind: \"fast\" is unknown; allowed: fd-2bw"},
      {{"--j", "some"}, "--j: schedule.j"},
      {{"--wire", "fp64"}, "--wire: wire.format"},
      {{"--links", "slow"}, "link profile 'slow'"},
      {{"--data", folder.File("none")}, "--data: there is no file or folder"},
  };
  for (const auto& [more, message] : cases) {
    std::vector<std::string> arguments = {"train", "--config", spec, "--data", text, "--run-dir", run_dir};
    for (const std::string& argument : more) {
      if (argument == "--data") arguments.erase(arguments.begin() + 3, arguments.begin() + 5);
      arguments.push_back(argument);
    }
    const ProgramResult result = RunProgram("stagecoach", arguments);
    EXPECT_EQ(result.exit_code, 64) << message;
    EXPECT_TRUE(absl::StrContains(result.error, message)) << result.error;
  }
  EXPECT_NE(access(run_dir.c_str(), F_OK), 0);
}

TEST(CommandLineTest, NoCoordinator_IsUnavailable) {
  const ProgramResult result = RunProgram("stagecoach", {"status", "--coordinator", "127.0.0.1:1"});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_TRUE(absl::StrContains(result.error, "no coordinator answers at 127.0.0.1:1")) << result.error;
}

TEST(CommandLineTest, Version_IsOneLine) {
  const ProgramResult result = RunProgram("stagecoach", {"version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(absl::StartsWith(result.output, "stagecoach 0.")) << result.output;
}

TEST(LinkemCommandTest, Ports_AreJsonAndTermEndsIt) {
  testing::TemporaryFolder folder;
  const auto program =
      StartProgram("stagecoach", {"linkem", "--profile", "80mbit/50ms", "--link", "a:b=127.0.0.1:0->127.0.0.1:5000",
                                  "--port-file", folder.File("ports")});
  ASSERT_NE(program, nullptr);
  ASSERT_TRUE(program->WaitForOutput("\"port\":", seconds(20)));
  EXPECT_TRUE(
      absl::StartsWith(testing::ReadWholeFile(folder.File("ports")), R"({"links":[{"from":"a","to":"b","port":)"));
  program->Signal(SIGTERM);
  const ProgramResult result = program->Wait(seconds(20));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(absl::StrContains(result.output, R"("bytes":0)")) << result.output;
}

}  // namespace
}  // namespace stagecoach
