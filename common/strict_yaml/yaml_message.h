// YAML files that people write, read strictly into a protobuf message: keys are the field names, enum values are lower
// case with '-', a repeated message is a list. Unknown keys, keys written twice, wrong types, values out of range and a
// second document are errors.
//
//   "run.yaml:3: model.widht: unknown key; allowed: architecture, width, ..."
//
// Threading: pure functions but for reading files. Errors: INVALID_ARGUMENT with FILE:LINE, key and what is allowed;
// NOT_FOUND: no such file.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/strict_yaml/field_rules.h"

namespace stagecoach {

// Where each key was written (path -> line, from 1), to place errors that are found later.
using YamlLines = std::map<std::string, int>;

struct YamlFormat {
  const FieldRules& (*rules)();
  size_t max_bytes;     // of a file: bounds what the YAML parser allocates
  const char* what;     // "a run spec"
  const char* example;  // a file to start from
};

// Types, names and ranges only. `lines` may be null.
absl::Status ReadYamlText(const YamlFormat& format, absl::string_view yaml, const std::string& file_name,
                          google::protobuf::Message* message, YamlLines* lines);
absl::Status ReadYamlFile(const YamlFormat& format, const std::string& path, google::protobuf::Message* message,
                          YamlLines* lines);

// The first required field that is missing, without a location.
absl::Status CheckRequiredFields(const FieldRules& rules, const google::protobuf::Message& message);

// Puts "FILE:LINE: " in front of an error that starts with a path: the line of that key, or of the block around it.
absl::Status PlaceYamlError(const absl::Status& error, const std::string& file_name, const YamlLines& lines);

// One value as it is written in the file.
std::string FieldText(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);

// The set fields as YAML text that ReadYamlText reads back.
std::string FormatYaml(const google::protobuf::Message& message);

}  // namespace stagecoach
