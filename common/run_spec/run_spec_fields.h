// Names, ranges and defaults of the run spec's fields, and text <-> field conversion by protobuf reflection.
// One table is the source for the YAML reader, for flag overrides, for validation and for docs/configuration.md.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT, text without a location: the caller puts FILE:LINE in front.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protos/run.pb.h"

namespace stagecoach {

struct FieldRule {
  const char* path;  // schedule.steps
  double min, max;   // of numbers; unused for text, enums and switches
  bool above_min;    // min itself is not allowed
  bool below_max;    // max itself is not allowed
  bool required;
  const char* allowed;   // for people: what may be written
  const char* fallback;  // for people: the default
};

// All fields of RunSpec that hold a value, in the order of the file.
const std::vector<FieldRule>& RunSpecFields();
// Null if there is no such field.
const FieldRule* FindFieldRule(absl::string_view path);

// llama for ARCHITECTURE_LLAMA.
std::string EnumText(const google::protobuf::EnumValueDescriptor* value);
// "llama, gpt2".
std::string EnumChoices(const google::protobuf::EnumDescriptor* type);
// "architecture, width, ..." of a message.
std::string KeyNames(const google::protobuf::Descriptor* message);

// ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$
bool IsValidName(absl::string_view name);

// Checks a number against the rule; the message starts with the path.
absl::Status CheckRange(const FieldRule& rule, double value, absl::string_view text);

// Sets the scalar `field` of `message` from text. `path` names it in messages and selects its rule.
absl::Status SetFieldFromText(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field,
                              absl::string_view path, absl::string_view text);

}  // namespace stagecoach
