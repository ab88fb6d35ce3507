// Run spec files: YAML text to RunSpec, strictly (common/strict_yaml). Keys are the field names, enum values are lower
// case with '-'.
//
//   RunSpec spec = ParseRunSpec(text, "run.yaml");    // INVALID_ARGUMENT "run.yaml:3: model.widht: unknown key;
//   allowed: ..."
//
// Threading: pure functions. Errors: INVALID_ARGUMENT with FILE:LINE, key and what is allowed; NOT_FOUND: no such file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/strict_yaml/yaml_message.h"
#include "protos/run.pb.h"

namespace stagecoach {

using SpecLines = YamlLines;

// Types, names and ranges only; required keys and rules between keys are checked by ValidateRunSpec once flags are
// applied. `lines` may be null.
absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, const std::string& file_name, SpecLines* lines);
absl::StatusOr<RunSpec> ReadRunSpecFile(const std::string& path, SpecLines* lines);

// Puts "FILE:LINE: " in front of an error of ValidateRunSpec, by the path that its text starts with.
absl::Status PlaceSpecError(const absl::Status& error, const std::string& file_name, const SpecLines& lines);

}  // namespace stagecoach
