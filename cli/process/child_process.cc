#include "cli/process/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

extern char** environ;

namespace stagecoach {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(5);  // of waits for an exit: far below what people notice
constexpr int kExecFailed = 127;                                 // as shells report it

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const ChildOptions& options) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  for (const auto& [key, value] : options.environment) {
    const std::string prefix = absl::StrCat(key, "=");
    std::erase_if(environment, [&](const std::string& entry) { return entry.starts_with(prefix); });
    environment.push_back(prefix + value);
  }
  return environment;
}

struct ExecPlan {
  const char* program;
  char** arguments;
  char** environment;
  const char* log;
  const char* output;
  const char* folder;
  pid_t parent;
  int error_fd;
};

void Redirect(const char* path, int flags, int target) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd >= 0) dup2(fd, target);
}

// Between fork and exec: async-signal-safe calls only, the parent may have threads.
[[noreturn]] void RunChild(const ExecPlan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(kExecFailed);  // it died before prctl
  setpgid(0, 0);                                     // Ctrl-C at the terminal is for the parent alone
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  if (plan.log != nullptr) {
    Redirect(plan.log, O_APPEND, STDERR_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  if (plan.output != nullptr) Redirect(plan.output, O_TRUNC, STDOUT_FILENO);
  if (plan.folder == nullptr || chdir(plan.folder) == 0) execve(plan.program, plan.arguments, plan.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = write(plan.error_fd, &error, sizeof(error));
  _exit(kExecFailed);
}

const char* OrNull(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

std::string ChildExit::ToString() const {
  return signaled ? absl::StrCat("signal ", code, " (", strsignal(code), ")") : absl::StrCat("exit status ", code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildOptions options) {
  if (access(options.program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot run ", options.program, ": ", strerror(errno), "; build it with scripts/setup.sh"));
  }
  int pipe_fds[2];  // closed by a successful exec; carries errno otherwise
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  std::vector<std::string> arguments = options.arguments;
  arguments.insert(arguments.begin(), options.program);
  std::vector<std::string> environment = Environment(options);
  std::vector<char*> argument_pointers = Pointers(arguments), environment_pointers = Pointers(environment);
  const ExecPlan plan{options.program.c_str(),
                      argument_pointers.data(),
                      environment_pointers.data(),
                      OrNull(options.log_path),
                      OrNull(options.output_path),
                      OrNull(options.working_directory),
                      getpid(),
                      pipe_fds[1]};
  const pid_t pid = fork();
  if (pid == 0) RunChild(plan);
  const int fork_error = errno;
  close(pipe_fds[1]);
  if (pid < 0) {
    close(pipe_fds[0]);
    return absl::ErrnoToStatus(fork_error, absl::StrCat("cannot start ", options.name));
  }
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(options), pid));
  int error = 0;
  const ssize_t count = read(pipe_fds[0], &error, sizeof(error));
  close(pipe_fds[0]);
  if (count == sizeof(error)) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", child->name(), " (", child->options_.program, ")"));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (Poll().has_value()) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

const std::optional<ChildExit>& ChildProcess::Poll() {
  int status = 0;
  if (!exit_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_ = WIFSIGNALED(status) ? ChildExit{true, WTERMSIG(status)} : ChildExit{false, WEXITSTATUS(status)};
  }
  return exit_;
}

bool ChildProcess::IsStopped() const {
  siginfo_t info{};
  return !exit_.has_value() && waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void ChildProcess::Signal(int signal) {
  if (Poll().has_value()) return;
  // Its own group exists once it has called setpgid; before that the process alone is meant.
  if (kill(-pid_, signal) != 0) kill(pid_, signal);
}

std::optional<ChildExit> ChildProcess::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (Running() && absl::Now() < deadline) absl::SleepFor(kPollInterval);
  return Poll();
}

void StopChildren(const std::vector<std::unique_ptr<ChildProcess>>& children, int signal, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (const auto& child : children) child->Signal(signal);
  for (const auto& child : children) child->WaitFor(deadline - absl::Now());
  for (const auto& child : children) child->Signal(SIGKILL);
  for (const auto& child : children) child->WaitFor(absl::Seconds(2));  // a killed process ends when the kernel says so
}

std::string ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

std::string LastLines(const std::string& path, size_t max_lines) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > max_lines) lines.pop_front();
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace stagecoach
