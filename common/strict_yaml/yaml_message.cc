#include "common/strict_yaml/yaml_message.h"

#include <yaml-cpp/yaml.h>

#include <fstream>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class MessageReader {
 public:
  MessageReader(const FieldRules& rules, const std::string& file_name, YamlLines* lines)
      : rules_(rules), file_name_(file_name), lines_(lines) {}

  absl::Status ReadMessage(const YAML::Node& node, const std::string& path, Message* message) {
    if (node.IsNull()) return absl::OkStatus();  // "model:" with nothing below it
    if (!node.IsMap()) {
      return At(node, absl::StrCat(path.empty() ? "the file" : path,
                                   ": expected keys; allowed: ", KeyNames(message->GetDescriptor())));
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return At(entry.first, absl::StrCat(path, ": a key must be a plain word"));
      const std::string key = entry.first.Scalar();
      const std::string full = path.empty() ? key : absl::StrCat(path, ".", key);
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
      if (field == nullptr) {
        return At(entry.first,
                  absl::StrCat(full.substr(0, 80), ": unknown key; allowed: ", KeyNames(message->GetDescriptor())));
      }
      if (!seen.insert(key).second) return At(entry.first, absl::StrCat(full, ": written twice"));
      if (lines_ != nullptr) (*lines_)[full] = entry.first.Mark().line + 1;
      RETURN_IF_ERROR(ReadField(entry.second, full, message, field));
    }
    return absl::OkStatus();
  }

  absl::Status At(const YAML::Node& node, absl::string_view text) const {
    return absl::InvalidArgumentError(absl::StrCat(file_name_, ":", node.Mark().line + 1, ": ", text));
  }

 private:
  // A list of messages; its rule bounds the number of items.
  absl::Status ReadList(const YAML::Node& node, const std::string& path, Message* message,
                        const FieldDescriptor* field) {
    const FieldRule* rule = FindFieldRule(rules_, path);
    if (rule == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::InternalError(absl::StrCat(path, ": has no rule"));
    }
    if (!node.IsSequence()) return At(node, absl::StrCat(path, ": expected a list; allowed: ", rule->allowed));
    const auto size = static_cast<double>(node.size());
    if (const absl::Status fits = CheckRange(*rule, path, size, absl::StrCat(node.size(), " items")); !fits.ok()) {
      return At(node, fits.message());
    }
    size_t index = 0;
    for (const YAML::Node& item : node) {
      const std::string full = absl::StrCat(path, "[", index++, "]");
      if (lines_ != nullptr) (*lines_)[full] = item.Mark().line + 1;
      RETURN_IF_ERROR(ReadMessage(item, full, message->GetReflection()->AddMessage(message, field)));
    }
    return absl::OkStatus();
  }

  absl::Status ReadField(const YAML::Node& node, const std::string& path, Message* message,
                         const FieldDescriptor* field) {
    if (field->is_repeated()) return ReadList(node, path, message, field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return ReadMessage(node, path, message->GetReflection()->MutableMessage(message, field));
    }
    const FieldRule* rule = FindFieldRule(rules_, path);
    const absl::string_view allowed = rule == nullptr ? "" : rule->allowed;
    if (!node.IsScalar()) return At(node, absl::StrCat(path, ": expected one value; allowed: ", allowed));
    const bool quoted = node.Tag() == "!";
    if (quoted && field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      return At(node, absl::StrCat(path, ": text in quotes; allowed: ", allowed));
    }
    const absl::Status set = SetFieldFromText(rules_, message, field, path, node.Scalar());
    return set.ok() ? set : At(node, set.message());
  }

  const FieldRules& rules_;
  const std::string& file_name_;
  YamlLines* lines_;
};

// Shortest text that reads back as the same number.
template <typename Number>
std::string NumberText(Number value) {
  const int most = std::numeric_limits<Number>::max_digits10;
  for (int digits = 6; digits < most; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && static_cast<Number>(back) == value) return text;
  }
  return absl::StrFormat("%.*g", most, value);
}

// `lead` stands in front of the first line: that of a list's item is "- ".
void AppendMessage(const Message& message, const std::string& indent, std::string lead, std::string* out) {
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) {
      const int size = reflection->FieldSize(message, field);
      if (size > 0) absl::StrAppend(out, absl::string_view(indent).substr(lead.size()), lead, field->name(), ":\n");
      for (int item = 0; item < size; ++item) {
        AppendMessage(reflection->GetRepeatedMessage(message, field, item), indent + "    ", "- ", out);
      }
    } else if (!reflection->HasField(message, field)) {
      continue;
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      absl::StrAppend(out, absl::string_view(indent).substr(lead.size()), lead, field->name(), ":\n");
      AppendMessage(reflection->GetMessage(message, field), indent + "  ", "", out);
    } else {
      absl::StrAppend(out, absl::string_view(indent).substr(lead.size()), lead, field->name(), ": ",
                      FieldText(message, field), "\n");
    }
    lead.clear();
  }
}

absl::Status CheckRequired(const FieldRules& rules, const Message& message, const std::string& prefix) {
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string path = prefix + field->name();
    const FieldRule* rule = FindFieldRule(rules, path);
    const bool there =
        field->is_repeated() ? reflection->FieldSize(message, field) > 0 : reflection->HasField(message, field);
    if (!there && rule != nullptr && rule->required) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is missing; allowed: ", rule->allowed));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || !there) continue;
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(CheckRequired(rules, reflection->GetMessage(message, field), path + "."));
      continue;
    }
    for (int item = 0; item < reflection->FieldSize(message, field); ++item) {
      RETURN_IF_ERROR(CheckRequired(rules, reflection->GetRepeatedMessage(message, field, item),
                                    absl::StrCat(path, "[", item, "].")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string FieldText(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(reflection->GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberText(reflection->GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberText(reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = reflection->GetInt64(message, field);
      return value < 0 ? "auto" : absl::StrCat(value);
    }
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(reflection->GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(reflection->GetUInt64(message, field));
    default: {
      YAML::Emitter quoted;
      quoted << YAML::DoubleQuoted << reflection->GetString(message, field);
      return quoted.c_str();
    }
  }
}

absl::Status ReadYamlText(const YamlFormat& format, absl::string_view yaml, const std::string& file_name,
                          Message* message, YamlLines* lines) {
  if (yaml.size() > format.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", yaml.size(), " bytes; ", format.what,
                                                   " has at most ", format.max_bytes >> 20, " MiB"));
  }
  try {  // yaml-cpp reports by exceptions; none leaves this function
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(yaml));
    MessageReader reader(format.rules(), file_name, lines);
    if (documents.size() > 1) {
      return reader.At(documents[1], absl::StrCat("a second document (---); ", format.what, " is one document"));
    }
    if (documents.empty() || !documents[0].IsDefined() || documents[0].IsNull()) {
      return absl::InvalidArgumentError(absl::StrCat(file_name, ": is empty; see ", format.example));
    }
    return reader.ReadMessage(documents[0], "", message);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ":", error.mark.line + 1, ": not YAML: ", error.msg));
  }
}

absl::Status ReadYamlFile(const YamlFormat& format, const std::string& path, Message* message, YamlLines* lines) {
  std::ifstream in(path, std::ios::binary);
  std::string text(format.max_bytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  text.resize(static_cast<size_t>(in.gcount()));
  return ReadYamlText(format, text, path, message, lines);
}

std::string FormatYaml(const Message& message) {
  std::string out;
  AppendMessage(message, "", "", &out);
  return out;
}

absl::Status CheckRequiredFields(const FieldRules& rules, const Message& message) {
  return CheckRequired(rules, message, "");
}

absl::Status PlaceYamlError(const absl::Status& error, const std::string& file_name, const YamlLines& lines) {
  if (error.ok()) return error;
  std::string path(error.message().substr(0, error.message().find(':')));
  int line = 0;
  while (line == 0 && !path.empty()) {  // a missing key is placed at the block it belongs to
    const auto found = lines.find(path);
    if (found != lines.end()) line = found->second;
    const size_t dot = path.find_last_of(".[");
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  const std::string where = line == 0 ? file_name : absl::StrCat(file_name, ":", line);
  return absl::Status(error.code(), absl::StrCat(where, ": ", error.message()));
}

}  // namespace stagecoach
