#include "coordinator/service/run_state_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagecoach {

RunState ToProto(RunPhase phase) {
  switch (phase) {
    case RunPhase::kWaiting:
      return RUN_STATE_WAITING;
    case RunPhase::kMeasuring:
    case RunPhase::kPlanning:
      return RUN_STATE_MEASURING;
    case RunPhase::kLoading:
      return RUN_STATE_LOADING;
    case RunPhase::kRunning:
      return RUN_STATE_RUNNING;
    case RunPhase::kStopping:
      return RUN_STATE_STOPPING;
    case RunPhase::kFinished:
      return RUN_STATE_FINISHED;
    case RunPhase::kStopped:
      return RUN_STATE_STOPPED;
    case RunPhase::kFailed:
      return RUN_STATE_FAILED;
  }
  return RUN_STATE_UNSPECIFIED;
}

std::string FormatSavedState(RunPhase phase, absl::string_view detail) {
  return absl::StrCat(static_cast<int>(phase), " ", detail);
}

SavedRunState ParseSavedState(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  int phase = 0;
  if (!absl::SimpleAtoi(parts.first, &phase) || phase < 0 || phase > static_cast<int>(RunPhase::kFailed)) {
    return {RUN_STATE_UNSPECIFIED, std::string(text)};
  }
  if (phase >= static_cast<int>(RunPhase::kFinished)) {
    return {ToProto(static_cast<RunPhase>(phase)), std::string(parts.second)};
  }
  return {RUN_STATE_FAILED, "the coordinator ended before the run did; its checkpoints stay"};
}

}  // namespace stagecoach
