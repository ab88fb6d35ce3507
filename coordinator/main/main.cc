// stagecoach-coordinator: membership, measuring, planning, run state.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/log.h"
#include "coordinator/service/coordinator_server.h"

namespace stagecoach {
namespace {

struct Flags {
  std::string listen = "127.0.0.1:50051", state_dir = "stagecoach-state", port_file;
  bool insecure = false;
};

int Complain(const absl::Status& status, int code) {
  fprintf(stderr, "stagecoach-coordinator: %s\n", std::string(status.message()).c_str());
  return code;
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
  if (!server.ok()) return Complain(server.status(), ServiceExitCodeOf(server.status()));
  const absl::Status written = WritePortFile(flags.port_file, (*server)->port());
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
  if (const absl::Status listen = stagecoach::CheckHostPort("--listen", flags.listen); !listen.ok()) {
    return stagecoach::Complain(listen, stagecoach::kExitUsage);
  }
  return stagecoach::Coordinate(flags, signals);
}
