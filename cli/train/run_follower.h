// Follows a run to its end: shows progress, passes Ctrl-C on as a graceful stop, notices processes that die.
//
// Threading: the main thread.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "cli/coordinator_client.h"
#include "cli/run/progress_line.h"
#include "cli/run/run_history.h"

namespace stagecoach {

struct FollowOptions {
  std::string run;
  // Not OK: something that the run needs is gone; it goes on without the workers of these names. May be empty.
  std::function<absl::Status(const std::set<std::string>& without)> check_alive;
  // Ctrl-C: true = stop the run and wait for its checkpoint; false = leave it running.
  bool interrupt_stops_run = true;
};

// OK: the run has ended (history->ended(): finished, stopped or failed, see its state). CANCELLED: interrupted, and the
// run has not ended in time, or goes on. Otherwise why it cannot be followed any longer.
absl::Status FollowRun(CoordinatorClient* client, const FollowOptions& options, ProgressPrinter* printer,
                       RunHistory* history);

}  // namespace stagecoach
