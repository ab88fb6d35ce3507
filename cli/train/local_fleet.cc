#include "cli/train/local_fleet.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
  if (!options.network.links.empty()) RETURN_IF_ERROR(fleet->StartEmulator());
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
  const LocalNetwork& network = options_.network;
  nlohmann::ordered_json config;  // YAML reads JSON
  config["seed"] = options_.link_seed;
  for (const LocalLink& link : network.links) {
    config["links"].push_back({{"from", network.workers[link.from].name},
                               {"to", network.workers[link.to].name},
                               {"profile", link.profile},
                               {"target", absl::StrCat("@", PortFile(network.workers[link.to].name))}});
  }
  config["ends"] = nlohmann::ordered_json::array();
  for (const LocalWorker& worker : network.workers) {
    nlohmann::ordered_json end = {{"name", worker.name}};
    if (worker.up_mbit > 0) end["up"] = absl::StrFormat("%.17gmbit", worker.up_mbit);
    if (worker.down_mbit > 0) end["down"] = absl::StrFormat("%.17gmbit", worker.down_mbit);
    if (end.size() > 1) config["ends"].push_back(end);
  }
  const std::string path = options_.run_dir + "/links.yaml";
  std::ofstream(path) << config.dump(1) << "\n";
  RETURN_IF_ERROR(Spawn("linkem", "stagecoach", {"linkem", "--config", path, "--port-file", PortFile("linkem")}));
  ASSIGN_OR_RETURN(const std::string text, WaitForFile(PortFile("linkem")));
  const auto ports = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (ports.is_discarded() || ports["links"].size() != network.links.size()) {
    return absl::InternalError("the link emulator names no ports");
  }
  for (const auto& link : ports["links"]) emulated_ports_.push_back(link["port"].get<uint16_t>());
  return absl::OkStatus();
}

absl::Status LocalFleet::StartWorkers() {
  const LocalNetwork& network = options_.network;
  for (uint32_t i = 0; i < network.workers.size(); ++i) {
    const LocalWorker& worker = network.workers[i];
    std::vector<std::string> arguments = {
        "--coordinator", coordinator_address_,  "--name",   worker.name, "--listen",  "127.0.0.1:0",
        "--port-file",   PortFile(worker.name), "--device", "cpu",       "--threads", absl::StrCat(options_.threads),
        "--executor",    options_.executor};
    if (worker.memory_gib > 0) {
      arguments.push_back("--memory-gib");
      arguments.push_back(absl::StrFormat("%.17g", worker.memory_gib));
    }
    for (size_t link = 0; link < emulated_ports_.size(); ++link) {
      if (network.links[link].from != i) continue;
      arguments.push_back("--dial");
      arguments.push_back(
          absl::StrCat(network.workers[network.links[link].to].name, "=127.0.0.1:", emulated_ports_[link]));
    }
    RETURN_IF_ERROR(Spawn(worker.name, "stagecoach-worker", std::move(arguments)));
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
