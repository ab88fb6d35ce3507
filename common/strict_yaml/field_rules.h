// Ranges and defaults of the fields of a message that people write as YAML, and text -> field by protobuf reflection.
//
// Paths: `schedule.steps`; an item of a list is `workers[3].name`, and the rule of all items is that of `workers.name`.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT, text without a location: the caller puts FILE:LINE in front.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace google::protobuf {
class Descriptor;
class EnumDescriptor;
class EnumValueDescriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace stagecoach {

struct FieldRule {
  const char* path;      // schedule.steps
  double min, max;       // of numbers, of the items of a list; unused for text, enums and switches
  bool above_min;        // min itself is not allowed
  bool below_max;        // max itself is not allowed
  bool required;         // must be written
  const char* allowed;   // for people: what may be written
  const char* fallback;  // for people: the default
  bool is_name = false;  // a text that must be a name (IsValidName)
};
using FieldRules = std::vector<FieldRule>;

inline constexpr char kNamePattern[] = "1..63 of a-z, 0-9, - (not at the ends)";

// Null if there is no such field.
const FieldRule* FindFieldRule(const FieldRules& rules, absl::string_view path);

// llama for ARCHITECTURE_LLAMA.
std::string EnumText(const google::protobuf::EnumValueDescriptor* value);
// "llama, gpt2".
std::string EnumChoices(const google::protobuf::EnumDescriptor* type);
// "architecture, width, ..." of a message.
std::string KeyNames(const google::protobuf::Descriptor* message);

// ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$
bool IsValidName(absl::string_view name);

// Checks a number against the rule; the message starts with the path.
absl::Status CheckRange(const FieldRule& rule, absl::string_view path, double value, absl::string_view text);

// Sets the scalar `field` of `message` from text. `path` names it in messages and selects its rule.
absl::Status SetFieldFromText(const FieldRules& rules, google::protobuf::Message* message,
                              const google::protobuf::FieldDescriptor* field, absl::string_view path,
                              absl::string_view text);

}  // namespace stagecoach
