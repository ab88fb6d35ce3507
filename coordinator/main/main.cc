// stagecoach-coordinator: membership, measuring, planning, run state.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/durable_file.h"
#include "common/log.h"
#include "coordinator/service/coordinator_server.h"

namespace stagecoach {
namespace {

constexpr int kExitFailed = 1, kExitUsage = 64, kExitUnavailable = 69, kExitInternal = 70, kExitConfiguration = 78;

struct Flags {
  std::string listen = "127.0.0.1:50051", state_dir = "stagecoach-state", port_file;
  bool insecure = false;
};

bool IsLoopback(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::string_view(host).substr(0, 4) == "127.";
}

int Complain(const absl::Status& status, int code) {
  fprintf(stderr, "stagecoach-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
}

int ExitCodeOf(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return kExitUnavailable;
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status)) return kExitConfiguration;
  return absl::IsInternal(status) ? kExitInternal : kExitFailed;
}

absl::Status WritePort(const std::string& path, int port) {
  if (path.empty()) return absl::OkStatus();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return WriteDurably(SystemFiles(), folder, name, absl::StrCat(port, "\n"));
}

int Coordinate(const Flags& flags, const sigset_t& signals) {
  if (!IsLoopback(flags.listen)) {
    if (!flags.insecure) {
      return Complain(absl::InvalidArgumentError(
                          absl::StrCat("--listen ", flags.listen,
                                       " is not a loopback address, and connections are neither encrypted "
                                       "nor authenticated; use a private network and add --insecure, or a tunnel")),
                      kExitConfiguration);
    }
    Log(LogLevel::kWarning, "coordinator", "insecure",
        {{"listen", flags.listen}, {"reason", "anyone who can connect may use the workers"}});
  }
  CoordinatorOptions options;
  options.listen = flags.listen;
  options.state_dir = flags.state_dir;
  auto server = CoordinatorServer::Start(options);
  if (!server.ok()) return Complain(server.status(), ExitCodeOf(server.status()));
  const absl::Status written = WritePort(flags.port_file, (*server)->port());
  if (!written.ok()) return Complain(written, kExitConfiguration);
  Log(LogLevel::kInfo, "coordinator", "started",
      {{"port", std::to_string((*server)->port())}, {"state_dir", flags.state_dir}});
  int signal = 0;
  do {
    signal = sigwaitinfo(&signals, nullptr);
  } while (signal != SIGTERM && signal != SIGINT);  // EINTR
  (*server)->Shutdown();
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  // Blocked before the first thread starts, so that only this one sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  stagecoach::Flags flags;
  CLI::App app{"Stagecoach coordinator: measures workers, plans the pipeline, follows runs"};
  app.add_option("--listen", flags.listen, "host:port to listen on; port 0 = any free one")->capture_default_str();
  app.add_option("--state-dir", flags.state_dir, "folder of the journal")->capture_default_str();
  app.add_option("--port-file", flags.port_file, "file that receives the port");
  app.add_flag("--insecure", flags.insecure, "allow an address that is not loopback");
  try {  // CLI11 reports by exceptions
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : stagecoach::kExitUsage;
  }
  if (flags.listen.rfind(':') == std::string::npos) {
    return stagecoach::Complain(absl::InvalidArgumentError("--listen must be host:port"), stagecoach::kExitUsage);
  }
  return stagecoach::Coordinate(flags, signals);
}
