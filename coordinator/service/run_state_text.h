// The state of a run for users, and as the journal keeps it: number of the phase, blank, detail.
//
// Threading: pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/domain/run_machine.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

RunState ToProto(RunPhase phase);

std::string FormatSavedState(RunPhase phase, absl::string_view detail);

struct SavedRunState {
  RunState state = RUN_STATE_UNSPECIFIED;
  std::string detail;
};
// What it means after the coordinator that wrote it is gone: a run that had not ended has failed with it.
SavedRunState ParseSavedState(absl::string_view text);

}  // namespace stagecoach
