// A running coordinator: journal, loops, gRPC server.
//
// Threading: Start, Shutdown and the destructor on the main thread. Errors of Start: FAILED_PRECONDITION, UNAVAILABLE
// (journal, address).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/domain/membership.h"
#include "coordinator/domain/run_machine.h"
#include "coordinator/store/run_journal.h"

namespace stagecoach {

struct CoordinatorOptions {
  std::string listen = "127.0.0.1:50051";  // port 0: any free one
  std::string state_dir;                   // empty: nothing outlives the process (tests)
  Membership::Options membership;
  RunMachine::Options run_limits;
};

class CoordinatorServer {
 public:
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(const CoordinatorOptions& options);
  ~CoordinatorServer();

  int port() const;
  // Stops runs, closes streams, flushes the journal. Once.
  void Shutdown();

 private:
  struct Parts;
  explicit CoordinatorServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace stagecoach
