#include "common/run_spec/run_spec_yaml.h"

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/run_spec/run_spec_fields.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxFileBytes = 1 << 20;  // a spec has about 50 keys; bounds what the YAML parser allocates

class SpecReader {
 public:
  SpecReader(const std::string& file_name, SpecLines* lines) : file_name_(file_name), lines_(lines) {}

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
  absl::Status ReadField(const YAML::Node& node, const std::string& path, Message* message,
                         const FieldDescriptor* field) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return ReadMessage(node, path, message->GetReflection()->MutableMessage(message, field));
    }
    const FieldRule* rule = FindFieldRule(path);
    const absl::string_view allowed = rule == nullptr ? "" : rule->allowed;
    if (!node.IsScalar()) return At(node, absl::StrCat(path, ": expected one value; allowed: ", allowed));
    const bool quoted = node.Tag() == "!";
    if (quoted && field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      return At(node, absl::StrCat(path, ": text in quotes; allowed: ", allowed));
    }
    const absl::Status set = SetFieldFromText(message, field, path, node.Scalar());
    return set.ok() ? set : At(node, set.message());
  }

  const std::string& file_name_;
  SpecLines* lines_;
};

// Shortest text that reads back as the same float.
std::string FloatText(float value) {
  for (int digits = 6; digits < 9; ++digits) {
    std::ostringstream text;
    text.precision(digits);
    text << value;
    float back = 0;
    if (absl::SimpleAtof(text.str(), &back) && back == value) return text.str();
  }
  std::ostringstream text;
  text.precision(9);
  text << value;
  return text.str();
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
      return FloatText(reflection->GetFloat(message, field));
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

namespace {

void AppendMessage(const Message& message, const std::string& indent, std::string* out) {
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (!reflection->HasField(message, field)) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      absl::StrAppend(out, indent, field->name(), ":\n");
      AppendMessage(reflection->GetMessage(message, field), indent + "  ", out);
    } else {
      absl::StrAppend(out, indent, field->name(), ": ", FieldText(message, field), "\n");
    }
  }
}

}  // namespace

absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, const std::string& file_name, SpecLines* lines) {
  if (yaml.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": ", yaml.size(), " bytes; a run spec has at most 1 MiB"));
  }
  RunSpec spec;
  try {  // yaml-cpp reports by exceptions; none leaves this function
    const YAML::Node root = YAML::Load(std::string(yaml));
    if (!root.IsDefined() || root.IsNull()) {
      return absl::InvalidArgumentError(absl::StrCat(file_name, ": is empty; see examples/runs/tiny.yaml"));
    }
    RETURN_IF_ERROR(SpecReader(file_name, lines).ReadMessage(root, "", &spec));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ":", error.mark.line + 1, ": not YAML: ", error.msg));
  }
  return spec;
}

absl::StatusOr<RunSpec> ReadRunSpecFile(const std::string& path, SpecLines* lines) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  text.resize(static_cast<size_t>(in.gcount()));
  return ParseRunSpec(text, path, lines);
}

absl::Status PlaceSpecError(const absl::Status& error, const std::string& file_name, const SpecLines& lines) {
  if (error.ok()) return error;
  std::string path(error.message().substr(0, error.message().find(':')));
  int line = 0;
  while (line == 0 && !path.empty()) {  // a missing key is placed at the block it belongs to
    const auto found = lines.find(path);
    if (found != lines.end()) line = found->second;
    const size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  const std::string where = line == 0 ? file_name : absl::StrCat(file_name, ":", line);
  return absl::Status(error.code(), absl::StrCat(where, ": ", error.message()));
}

std::string FormatRunSpec(const RunSpec& spec) {
  std::string out;
  AppendMessage(spec, "", &out);
  return out;
}

}  // namespace stagecoach
