// Run spec files: YAML text <-> RunSpec, strictly. Keys are the field names, enum values are lower case with '-'.
//
//   RunSpec spec = ParseRunSpec(text, "run.yaml");    // INVALID_ARGUMENT "run.yaml:3: model.widht: unknown key;
//   allowed: ..."
//
// Threading: pure functions. Errors: INVALID_ARGUMENT with FILE:LINE, key and what is allowed; NOT_FOUND: no such file.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protos/run.pb.h"

namespace stagecoach {

// Where each key was written (path -> line, from 1), to place errors that are found later.
using SpecLines = std::map<std::string, int>;

// Types, names and ranges only; required keys and rules between keys are checked by ValidateRunSpec once flags are
// applied. `lines` may be null.
absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, const std::string& file_name, SpecLines* lines);
absl::StatusOr<RunSpec> ReadRunSpecFile(const std::string& path, SpecLines* lines);

// Puts "FILE:LINE: " in front of an error of ValidateRunSpec, by the path that its text starts with.
absl::Status PlaceSpecError(const absl::Status& error, const std::string& file_name, const SpecLines& lines);

// One value as it is written in the file.
std::string FieldText(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);

// The set fields as YAML text that ParseRunSpec reads back.
std::string FormatRunSpec(const RunSpec& spec);

}  // namespace stagecoach
