// stagecoach-worker as a process: flags, exit codes, signals.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/support/process_harness.h"

namespace stagecoach::testing {
namespace {

using std::chrono::seconds;

TEST(WorkerProgramTest, UnusableFlags_EndWith64) {
  const ProgramResult result = RunProgram("stagecoach-worker", {"--coordinator", "127.0.0.1:1", "--threads", "0"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_NE(result.error.find("--threads"), std::string::npos) << result.error;
}

TEST(WorkerProgramTest, OpenListenAddress_NeedsToBeAskedFor) {
  const ProgramResult result =
      RunProgram("stagecoach-worker", {"--coordinator", "127.0.0.1:1", "--listen", "0.0.0.0:0"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_NE(result.error.find("--insecure"), std::string::npos) << result.error;
}

TEST(WorkerProgramTest, ListenAddressInUse_EndsWith69) {
  TemporaryFolder folder;
  const auto first = StartProgram(
      "stagecoach-worker", {"--coordinator", "127.0.0.1:1", "--executor", "fake", "--port-file", folder.File("port")});
  ASSERT_TRUE(first->WaitForOutput("event=started", seconds(20)));
  std::string port = ReadWholeFile(folder.File("port"));
  port = port.substr(0, port.find('\n'));
  const ProgramResult second = RunProgram(
      "stagecoach-worker", {"--coordinator", "127.0.0.1:1", "--executor", "fake", "--listen", "127.0.0.1:" + port});
  EXPECT_EQ(second.exit_code, 69) << second.error;
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(seconds(10)).exit_code, 0);
}

TEST(WorkerProgramTest, InterruptWithoutCoordinator_EndsWith0) {
  const auto worker = StartProgram("stagecoach-worker", {"--coordinator", "127.0.0.1:1", "--executor", "fake"});
  ASSERT_TRUE(worker->WaitForOutput("event=started", seconds(20)));
  worker->Signal(SIGINT);
  EXPECT_EQ(worker->Wait(seconds(10)).exit_code, 0);
}

TEST(WorkerProgramTest, DeviceThatIsNotThere_EndsWith78) {
  const ProgramResult result =
      RunProgram("stagecoach-worker", {"--coordinator", "127.0.0.1:1", "--device", "cuda:999"});
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_NE(result.error.find("cuda:999"), std::string::npos) << result.error;
}

}  // namespace
}  // namespace stagecoach::testing
