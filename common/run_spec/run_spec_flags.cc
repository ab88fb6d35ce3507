#include "common/run_spec/run_spec_flags.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/run_spec/run_spec_fields.h"
#include "google/protobuf/descriptor.h"

namespace stagecoach {

absl::Status ApplyOverride(RunSpec* spec, absl::string_view path, absl::string_view value) {
  google::protobuf::Message* message = spec;
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto* field = message->GetDescriptor()->FindFieldByName(parts[i]);
    const bool is_message = field != nullptr && field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
    if (field == nullptr || is_message != (i + 1 < parts.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path.substr(0, 80), ": unknown key; allowed: ", KeyNames(message->GetDescriptor())));
    }
    if (!is_message) return SetFieldFromText(RunSpecFields(), message, field, path, value);
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return absl::InvalidArgumentError("an override needs a key");
}

}  // namespace stagecoach
