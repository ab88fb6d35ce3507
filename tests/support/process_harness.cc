#include "tests/support/process_harness.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

namespace stagecoach::testing {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(10);

std::string RequiredEnvironment(const char* name) {
  const char* value = getenv(name);
  if (value == nullptr) ADD_FAILURE() << name << " is not set; run the test through ctest";
  return value == nullptr ? "" : value;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "stagecoach-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << pattern << " failed";
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  if (::testing::Test::HasFailure()) {
    std::cerr << "kept for inspection: " << path_ << "\n";
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Write(const std::string& name, const std::string& text) const {
  const std::string path = File(name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

RunningProgram::RunningProgram(std::unique_ptr<ChildProcess> child, std::unique_ptr<TemporaryFolder> files)
    : files_(std::move(files)), child_(std::move(child)) {}

std::string RunningProgram::Output() const { return ReadWholeFile(files_->File("out")); }

std::string RunningProgram::Error() const { return ReadWholeFile(files_->File("err")); }

bool RunningProgram::WaitForOutput(const std::string& text, std::chrono::milliseconds deadline) {
  const absl::Time end = absl::Now() + absl::FromChrono(deadline);
  for (;;) {
    const bool running = Running();  // before reading: what it wrote last must be seen
    if ((Output() + Error()).find(text) != std::string::npos) return true;
    if (!running || absl::Now() > end) break;
    absl::SleepFor(kPollInterval);
  }
  ADD_FAILURE() << "'" << text << "' did not appear; output:\n" << Output() << "\nerror output:\n" << Error();
  return false;
}

ProgramResult RunningProgram::Wait(std::chrono::milliseconds deadline) {
  const std::optional<ChildExit> end = child_->WaitFor(absl::FromChrono(deadline));
  if (!end.has_value()) {
    child_->Signal(SIGKILL);
    child_->WaitFor(absl::Seconds(5));
    ADD_FAILURE() << child_->name() << " did not end within " << deadline.count() << " ms; output:\n"
                  << Output() << "\nerror output:\n"
                  << Error();
    return {128 + SIGKILL, Output(), Error()};
  }
  return {end->signaled ? 128 + end->code : end->code, Output(), Error()};
}

std::unique_ptr<RunningProgram> StartProgram(const std::string& program, std::vector<std::string> arguments,
                                             Environment environment) {
  auto files = std::make_unique<TemporaryFolder>();
  ChildOptions options;
  options.name = program;
  options.program = program.find('/') == std::string::npos ? BinFolder() + "/" + program : program;
  options.arguments = std::move(arguments);
  options.log_path = files->File("err");
  options.output_path = files->File("out");
  options.environment = std::move(environment);
  auto child = ChildProcess::Start(std::move(options));
  if (!child.ok()) {
    ADD_FAILURE() << child.status();
    return nullptr;
  }
  return std::make_unique<RunningProgram>(*std::move(child), std::move(files));
}

ProgramResult RunProgram(const std::string& program, std::vector<std::string> arguments,
                         std::chrono::milliseconds deadline, Environment environment) {
  const auto running = StartProgram(program, std::move(arguments), std::move(environment));
  return running == nullptr ? ProgramResult{} : running->Wait(deadline);
}

std::vector<pid_t> ProcessesWith(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || pid == getpid()) continue;
    std::string command_line = ReadWholeFile(entry.path() / "cmdline");
    std::replace(command_line.begin(), command_line.end(), '\0', ' ');
    if (command_line.find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool WaitForNoProcessWith(const std::string& text, std::chrono::milliseconds deadline) {
  const absl::Time end = absl::Now() + absl::FromChrono(deadline);
  while (!ProcessesWith(text).empty()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(kPollInterval);
  }
  return true;
}

std::string BinFolder() { return RequiredEnvironment("STAGECOACH_BIN"); }

std::string SourceFolder() { return RequiredEnvironment("STAGECOACH_SOURCE"); }

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace stagecoach::testing
