#include "cli/train/local_fleet.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/interrupt.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

// libtorch takes seconds to load on a cold disk; four workers share two cores.
constexpr absl::Duration kStartDeadline = absl::Seconds(60);
constexpr absl::Duration kPollInterval = absl::Milliseconds(10);
constexpr size_t kLastWords = 5;  // lines of a log in an error message

std::string WorkerName(uint32_t index) { return absl::StrCat("w", index); }

}  // namespace

absl::StatusOr<std::unique_ptr<LocalFleet>> LocalFleet::Start(const FleetOptions& options) {
  std::error_code error;
  std::filesystem::remove_all(options.run_dir + "/ports", error);  // of an earlier life: they would be believed
  for (const char* folder : {"/logs", "/ports"}) {
    std::filesystem::create_directories(options.run_dir + folder, error);
    if (error) {
      return absl::PermissionDeniedError(
          absl::StrCat("cannot make ", options.run_dir, folder, ": ", error.message(), "; choose another --run-dir"));
    }
  }
  std::unique_ptr<LocalFleet> fleet(new LocalFleet(options));
  RETURN_IF_ERROR(fleet->StartCoordinator());
  if (options.links != "none" && options.workers > 1) RETURN_IF_ERROR(fleet->StartEmulator());
  RETURN_IF_ERROR(fleet->StartWorkers());
  return fleet;
}

LocalFleet::~LocalFleet() { Stop(absl::ZeroDuration()); }

absl::Status LocalFleet::Spawn(const std::string& name, const std::string& program,
                               std::vector<std::string> arguments) {
  ChildOptions child;
  child.name = name;
  child.program = options_.program_folder + "/" + program;
  child.arguments = std::move(arguments);
  child.log_path = absl::StrCat(options_.run_dir, "/logs/", name, ".log");
  // Before libtorch reads --threads its OpenMP would take every core.
  child.environment = {{"OMP_NUM_THREADS", absl::StrCat(options_.threads)},
                       {"MKL_NUM_THREADS", absl::StrCat(options_.threads)}};
  ASSIGN_OR_RETURN(auto started, ChildProcess::Start(std::move(child)));
  children_.push_back(std::move(started));
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalFleet::WaitForFile(const std::string& path) {
  const absl::Time deadline = absl::Now() + kStartDeadline;
  while (absl::Now() < deadline) {
    RETURN_IF_ERROR(CheckAlive());
    if (InterruptRequested()) return absl::CancelledError("interrupted while the processes were starting");
    std::ifstream file(path);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (absl::EndsWith(text, "\n")) return std::string(absl::StripSuffix(text, "\n"));
    absl::SleepFor(kPollInterval);
  }
  return absl::UnavailableError(absl::StrCat("a process has not written ", path, " within ",
                                             absl::FormatDuration(kStartDeadline), "; see ", options_.run_dir,
                                             "/logs"));
}

absl::Status LocalFleet::StartCoordinator() {
  RETURN_IF_ERROR(Spawn("coordinator", "stagecoach-coordinator",
                        {"--listen", "127.0.0.1:0", "--port-file", PortFile("coordinator"), "--state-dir",
                         options_.run_dir + "/coordinator"}));
  ASSIGN_OR_RETURN(const std::string port, WaitForFile(PortFile("coordinator")));
  coordinator_address_ = absl::StrContains(port, ':') ? port : "127.0.0.1:" + port;
  return absl::OkStatus();
}

// One proxied port for each ordered pair: `from` dials it to reach `to`, whose real port is looked up at that time.
absl::Status LocalFleet::StartEmulator() {
  std::vector<std::string> arguments = {
      "linkem",      "--profile",       options_.links, "--seed", absl::StrCat(options_.link_seed),
      "--port-file", PortFile("linkem")};
  for (uint32_t from = 0; from < options_.workers; ++from) {
    for (uint32_t to = 0; to < options_.workers; ++to) {
      if (from == to) continue;
      arguments.push_back("--link");
      arguments.push_back(
          absl::StrCat(WorkerName(from), ":", WorkerName(to), "=127.0.0.1:0->@", PortFile(WorkerName(to))));
    }
  }
  RETURN_IF_ERROR(Spawn("linkem", "stagecoach", std::move(arguments)));
  ASSIGN_OR_RETURN(const std::string text, WaitForFile(PortFile("linkem")));
  const auto ports = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  emulated_ports_.assign(options_.workers, std::vector<uint16_t>(options_.workers, 0));
  size_t i = 0;
  for (uint32_t from = 0; from < options_.workers; ++from) {
    for (uint32_t to = 0; to < options_.workers; ++to) {
      if (from == to) continue;
      if (ports.is_discarded() || i >= ports["links"].size())
        return absl::InternalError("the link emulator names no ports");
      emulated_ports_[from][to] = ports["links"][i++]["port"].get<uint16_t>();
    }
  }
  return absl::OkStatus();
}

absl::Status LocalFleet::StartWorkers() {
  for (uint32_t i = 0; i < options_.workers; ++i) {
    std::vector<std::string> arguments = {"--coordinator", coordinator_address_,
                                          "--name",        WorkerName(i),
                                          "--listen",      "127.0.0.1:0",
                                          "--port-file",   PortFile(WorkerName(i)),
                                          "--device",      "cpu",
                                          "--threads",     absl::StrCat(options_.threads),
                                          "--executor",    options_.executor};
    for (uint32_t peer = 0; peer < options_.workers && !emulated_ports_.empty(); ++peer) {
      if (peer == i) continue;
      arguments.push_back("--dial");
      arguments.push_back(absl::StrCat(WorkerName(peer), "=127.0.0.1:", emulated_ports_[i][peer]));
    }
    RETURN_IF_ERROR(Spawn(WorkerName(i), "stagecoach-worker", std::move(arguments)));
  }
  return absl::OkStatus();
}

absl::Status LocalFleet::CheckAlive(const std::set<std::string>& without) {
  for (const auto& child : children_) {
    if (without.count(child->name()) > 0) continue;
    const auto& end = child->Poll();
    if (!end.has_value()) continue;
    const std::string words = LastLines(child->log_path(), kLastWords);
    return absl::UnavailableError(absl::StrCat(child->name(), " ended with ", end->ToString(), "; its log is ",
                                               child->log_path(),
                                               words.empty() ? "" : absl::StrCat("; last lines:\n", words)));
  }
  return absl::OkStatus();
}

std::string LocalFleet::StoppedProcess() const {
  for (const auto& child : children_) {
    if (child->IsStopped())
      return absl::StrCat(child->name(), " is stopped (SIGSTOP or SIGTSTP; SIGCONT continues it)");
  }
  return "";
}

void LocalFleet::Stop(absl::Duration grace) {
  if (children_.empty()) return;
  StopChildren(children_, SIGTERM, grace);
  children_.clear();
}

}  // namespace stagecoach
