// What a run came to, for whoever followed it: the report in files and on the terminal.
//
// Threading: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/run/run_history.h"

namespace stagecoach {

// `followed`: how FollowRun ended. Files first: nobody may be reading the terminal, which gets the report only if a
// step was done. The losses of earlier lives come from the checkpoint where it can be read from here. Nothing if
// nothing was heard of the run. Errors: of writing a file, after all that could be written was.
absl::Status ReportRun(const RunHistory& history, const absl::Status& followed, const std::string& links,
                       const std::vector<std::string>& files);

}  // namespace stagecoach
