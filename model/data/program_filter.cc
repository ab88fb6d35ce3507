#include "model/data/program_filter.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

extern char** environ;

namespace stagecoach {
namespace {

constexpr size_t kPieceBytes = 64 << 10;  // the usual capacity of a socket buffer

}  // namespace

absl::StatusOr<std::unique_ptr<ProgramFilter>> ProgramFilter::Start(const std::vector<std::string>& arguments,
                                                                    const std::string& package) {
  // A socket pair and not two pipes: a write to a program that died is then an error and not a SIGPIPE.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(absl::StrCat("socketpair: ", strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int code = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (code != 0) {
    close(ends[0]);
    return absl::FailedPreconditionError(
        absl::StrCat("cannot run ", arguments[0], ": ", strerror(code), "; install the Debian package ", package));
  }
  return std::unique_ptr<ProgramFilter>(new ProgramFilter(arguments[0], child, ends[0]));
}

ProgramFilter::~ProgramFilter() { End(); }

void ProgramFilter::End() {
  if (channel_ >= 0) close(channel_);
  channel_ = -1;
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

absl::Status ProgramFilter::TakeOutput(const Sink& sink, bool* ended) {
  char piece[kPieceBytes];
  const ssize_t count = recv(channel_, piece, sizeof(piece), 0);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return absl::OkStatus();
  if (count < 0) return absl::InternalError(absl::StrCat("cannot read from ", name_, ": ", strerror(errno)));
  *ended = count == 0;
  return sink(absl::string_view(piece, static_cast<size_t>(count)));
}

absl::Status ProgramFilter::Write(absl::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    pollfd state{channel_, POLLIN | POLLOUT, 0};
    if (poll(&state, 1, -1) < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", strerror(errno)));
    // Output first: a program that cannot write does not read either.
    if ((state.revents & (POLLIN | POLLHUP)) != 0) {
      bool ended = false;
      RETURN_IF_ERROR(TakeOutput(sink, &ended));
      if (ended) return absl::InternalError(absl::StrCat(name_, " ended before it had read everything"));
    } else if ((state.revents & POLLOUT) != 0) {
      const ssize_t count =
          send(channel_, bytes.data(), std::min(bytes.size(), kPieceBytes), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EINTR && errno != EAGAIN) {
        return absl::InternalError(absl::StrCat("cannot write to ", name_, ": ", strerror(errno)));
      }
      if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramFilter::Finish(const Sink& sink) {
  shutdown(channel_, SHUT_WR);
  for (bool ended = false; !ended;) RETURN_IF_ERROR(TakeOutput(sink, &ended));
  int state = 0;
  while (waitpid(child_, &state, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
    return absl::InternalError(absl::StrCat(name_,
                                            WIFSIGNALED(state) ? " was killed by signal " : " failed with exit code ",
                                            WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& arguments, const std::string& package,
                                       absl::string_view input, size_t cap) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ProgramFilter> program, ProgramFilter::Start(arguments, package));
  std::string output;
  const auto sink = [&](absl::string_view piece) {
    if (output.size() + piece.size() > cap) {
      return absl::ResourceExhaustedError(absl::StrCat("the output of ", arguments[0], " exceeds ", cap, " bytes"));
    }
    output.append(piece.data(), piece.size());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(program->Write(input, sink));
  RETURN_IF_ERROR(program->Finish(sink));
  return output;
}

}  // namespace stagecoach
