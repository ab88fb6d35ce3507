// Runs the built programs ($STAGECOACH_BIN) in tests: with a deadline, with captured output, with signals.
//
//   ProgramResult result = RunProgram("stagecoach", {"version"});
//   auto program = StartProgram("stagecoach", {"train", ...});  program->WaitForOutput("step 3");
//   program->Signal(SIGINT);
//
// Threading: the thread of the test. Errors: gtest failures; a program that passes its deadline is killed and fails the
// test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/process/child_process.h"

namespace stagecoach::testing {

// A folder below $TMPDIR that goes away with the object; kept, with a line that says where, when the test has failed.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string output;  // standard output
  std::string error;   // standard error
};

class RunningProgram {
 public:
  explicit RunningProgram(std::unique_ptr<ChildProcess> child, std::unique_ptr<TemporaryFolder> files);
  pid_t pid() const { return child_->pid(); }
  bool Running() { return child_->Running(); }
  void Signal(int signal) { child_->Signal(signal); }
  std::string Output() const;  // so far
  std::string Error() const;   // so far
  // Until either output contains `text`; false (and a test failure) at the deadline or when the program has ended
  // without.
  bool WaitForOutput(const std::string& text, std::chrono::milliseconds deadline);
  ProgramResult Wait(std::chrono::milliseconds deadline);

 private:
  std::unique_ptr<TemporaryFolder> files_;
  std::unique_ptr<ChildProcess> child_;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// `program`: a name in $STAGECOACH_BIN, or a path. Null, and a test failure, if it cannot be started.
std::unique_ptr<RunningProgram> StartProgram(const std::string& program, std::vector<std::string> arguments,
                                             Environment environment = {});
ProgramResult RunProgram(const std::string& program, std::vector<std::string> arguments,
                         std::chrono::milliseconds deadline = std::chrono::seconds(60), Environment environment = {});

// Processes, other than the caller, whose command line contains `text`: a run directory finds everything of a run.
std::vector<pid_t> ProcessesWith(const std::string& text);
// Waits until there are none; false at the deadline.
bool WaitForNoProcessWith(const std::string& text, std::chrono::milliseconds deadline);

std::string BinFolder();     // $STAGECOACH_BIN
std::string SourceFolder();  // $STAGECOACH_SOURCE
std::string ReadWholeFile(const std::string& path);

}  // namespace stagecoach::testing
