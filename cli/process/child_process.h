// Starts and supervises one child process that never outlives its parent: the kernel kills the child when the parent
// dies, also by SIGKILL, and the destructor kills what still runs.
//
// Threading: one thread, which must be one that lives as long as the program (the main thread): PR_SET_PDEATHSIG fires
// when the *thread* that forked ends. Fork before any gRPC object exists; later only fork + exec.
// Errors: NOT_FOUND (no such program), RESOURCE_EXHAUSTED / INTERNAL (fork, files).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace stagecoach {

struct ChildOptions {
  std::string name;     // for messages: w0, coordinator
  std::string program;  // path
  std::vector<std::string> arguments;
  std::string log_path;           // standard error, and output unless output_path is set; appended; empty: inherited
  std::string output_path;        // standard output alone, truncated
  std::string working_directory;  // empty: the parent's
  std::vector<std::pair<std::string, std::string>> environment;  // added to the parent's
};

// How a child ended.
struct ChildExit {
  bool signaled = false;
  int code = 0;  // exit status, or the signal
  bool ok() const { return !signaled && code == 0; }
  std::string ToString() const;  // "exit status 1", "signal 9 (Killed)"
};

class ChildProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildOptions options);
  ~ChildProcess();  // SIGKILL to its process group, then reaps
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_path() const { return options_.log_path; }
  pid_t pid() const { return pid_; }
  // Reaps without waiting; the exit once there is one.
  const std::optional<ChildExit>& Poll();
  bool Running() { return !Poll().has_value(); }
  bool IsStopped() const;  // by SIGSTOP or a terminal: it lives, and does nothing
  // To the child's process group. Nothing once it has ended.
  void Signal(int signal);
  // Waits until it has ended, at most `timeout`.
  std::optional<ChildExit> WaitFor(absl::Duration timeout);

 private:
  ChildProcess(ChildOptions options, pid_t pid) : options_(std::move(options)), pid_(pid) {}

  const ChildOptions options_;
  const pid_t pid_;
  std::optional<ChildExit> exit_;
};

// Signals every child, then waits for all of them until `timeout`; those that remain are killed.
void StopChildren(const std::vector<std::unique_ptr<ChildProcess>>& children, int signal, absl::Duration timeout);

// The folder of the running program: its siblings are found there.
std::string ProgramFolder();

// Last `max_lines` lines of a file, for error messages; empty if there is none.
std::string LastLines(const std::string& path, size_t max_lines);

}  // namespace stagecoach
