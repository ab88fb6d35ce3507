// Command line values that override fields of a run spec, with the checks of the YAML reader.
//
// Threading: pure. Errors: INVALID_ARGUMENT as in run_spec_yaml.h, without a line.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "protos/run.pb.h"

namespace stagecoach {

// ApplyOverride(&spec, "schedule.steps", "200").
absl::Status ApplyOverride(RunSpec* spec, absl::string_view path, absl::string_view value);

}  // namespace stagecoach
