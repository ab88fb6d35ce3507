// A whole fleet on this machine as child processes: coordinator, link emulator, workers. Everything ends with the
// object.
//
// Threading: the main thread (see child_process.h). Start before any gRPC object exists.
// Errors: UNAVAILABLE / NOT_FOUND with the process's name, how it ended, its last words and its log.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/process/child_process.h"
#include "cli/train/local_network.h"

namespace stagecoach {

struct FleetOptions {
  std::string program_folder;  // where the programs are
  std::string run_dir;         // logs/ and ports/ below it
  LocalNetwork network;
  uint32_t threads = 1;
  uint64_t link_seed = 1;
  std::string executor;  // torch, fake
};

class LocalFleet {
 public:
  static absl::StatusOr<std::unique_ptr<LocalFleet>> Start(const FleetOptions& options);
  ~LocalFleet();
  LocalFleet(const LocalFleet&) = delete;
  LocalFleet& operator=(const LocalFleet&) = delete;

  const std::string& coordinator_address() const { return coordinator_address_; }
  // Names the first process that has ended, but for those of `without`, with the end of its log.
  absl::Status CheckAlive(const std::set<std::string>& without = {});
  // "w1 is stopped (SIGSTOP)" and the like, of the first such process; empty if there is none. It may be why a run
  // failed that blames another.
  std::string StoppedProcess() const;
  // Asks everything to end, waits at most `grace`, then kills.
  void Stop(absl::Duration grace);

 private:
  explicit LocalFleet(FleetOptions options) : options_(std::move(options)) {}
  absl::Status StartCoordinator();
  absl::Status StartEmulator();
  absl::Status StartWorkers();
  absl::Status Spawn(const std::string& name, const std::string& program, std::vector<std::string> arguments);
  // Waits until `path` exists, while everything lives.
  absl::StatusOr<std::string> WaitForFile(const std::string& path);
  std::string PortFile(const std::string& name) const { return options_.run_dir + "/ports/" + name; }

  const FleetOptions options_;
  std::string coordinator_address_;
  std::vector<uint16_t> emulated_ports_;  // of network.links
  std::vector<std::unique_ptr<ChildProcess>> children_;
};

}  // namespace stagecoach
