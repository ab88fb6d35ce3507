#include "common/strict_yaml/field_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// RATE_SCHEDULE_ of RATE_SCHEDULE_UNSPECIFIED, which every enum has as its value 0.
std::string EnumPrefix(const google::protobuf::EnumDescriptor* type) {
  constexpr absl::string_view kZero = "UNSPECIFIED";
  const std::string& name = type->FindValueByNumber(0)->name();
  return name.substr(0, name.size() - kZero.size());
}

absl::Status WrongType(absl::string_view path, absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": \"", text.substr(0, 80), "\" is not ", wanted));
}

absl::Status SetEnum(Message* message, const FieldDescriptor* field, absl::string_view path, absl::string_view text) {
  const auto* type = field->enum_type();
  for (int i = 0; i < type->value_count(); ++i) {
    if (type->value(i)->number() != 0 && absl::string_view(EnumText(type->value(i))) == text) {
      message->GetReflection()->SetEnum(message, field, type->value(i));
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": \"", text.substr(0, 80), "\" is unknown; allowed: ", EnumChoices(type)));
}

absl::Status SetNumber(const FieldRules& rules, Message* message, const FieldDescriptor* field, absl::string_view path,
                       absl::string_view text) {
  const FieldRule* rule = FindFieldRule(rules, path);
  if (rule == nullptr) return absl::InternalError(absl::StrCat(path, ": has no rule"));
  const auto* reflection = message->GetReflection();
  const bool is_float = field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
  if (is_float || field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    double number = 0;
    if (!absl::SimpleAtod(text, &number))
      return WrongType(path, text, absl::StrCat("a number; allowed: ", rule->allowed));
    RETURN_IF_ERROR(CheckRange(*rule, path, is_float ? static_cast<float>(number) : number, text));
    if (is_float) {
      reflection->SetFloat(message, field, static_cast<float>(number));
    } else {
      reflection->SetDouble(message, field, number);
    }
    return absl::OkStatus();
  }
  const std::string integer = absl::StrCat("an integer; allowed: ", rule->allowed);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {  // schedule.j alone: -1 is written auto
    int64_t number = -1;
    if (text != "auto" && !absl::SimpleAtoi(text, &number)) return WrongType(path, text, integer);
    RETURN_IF_ERROR(CheckRange(*rule, path, static_cast<double>(number), text));
    reflection->SetInt64(message, field, number);
    return absl::OkStatus();
  }
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    int64_t negative = 0;
    if (absl::SimpleAtoi(text, &negative)) return CheckRange(*rule, path, static_cast<double>(negative), text);
    return WrongType(path, text, integer);
  }
  RETURN_IF_ERROR(CheckRange(*rule, path, static_cast<double>(number), text));
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    reflection->SetUInt64(message, field, number);
  } else {
    reflection->SetUInt32(message, field, static_cast<uint32_t>(number));
  }
  return absl::OkStatus();
}

}  // namespace

const FieldRule* FindFieldRule(const FieldRules& rules, absl::string_view path) {
  std::string of_items;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '[')
      i = std::min(path.find(']', i), path.size() - 1);
    else
      of_items += path[i];
  }
  for (const FieldRule& rule : rules) {
    if (of_items == rule.path) return &rule;
  }
  return nullptr;
}

std::string EnumText(const google::protobuf::EnumValueDescriptor* value) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(value->name().substr(EnumPrefix(value->type()).size())),
                             {{"_", "-"}});
}

std::string EnumChoices(const google::protobuf::EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    if (type->value(i)->number() != 0) names.push_back(EnumText(type->value(i)));
  }
  return absl::StrJoin(names, ", ");
}

std::string KeyNames(const google::protobuf::Descriptor* message) {
  std::vector<std::string> names;
  for (int i = 0; i < message->field_count(); ++i) names.push_back(message->field(i)->name());
  return absl::StrJoin(names, ", ");
}

bool IsValidName(absl::string_view name) {
  if (name.empty() || name.size() > 63 || name.front() == '-' || name.back() == '-') return false;
  for (const char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-') return false;
  }
  return true;
}

absl::Status CheckRange(const FieldRule& rule, absl::string_view path, double value, absl::string_view text) {
  const bool low = rule.above_min ? value <= rule.min : value < rule.min;
  const bool high = rule.below_max ? value >= rule.max : value > rule.max;
  if (!low && !high && !std::isnan(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", text.substr(0, 80), " is out of range; allowed: ", rule.allowed));
}

absl::Status SetFieldFromText(const FieldRules& rules, Message* message, const FieldDescriptor* field,
                              absl::string_view path, absl::string_view text) {
  const auto* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return SetEnum(message, field, path, text);
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return WrongType(path, text, "a switch; allowed: true, false");
      reflection->SetBool(message, field, text == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_STRING:
      if (const FieldRule* rule = FindFieldRule(rules, path); rule != nullptr && rule->is_name && !IsValidName(text))
        return WrongType(path, text, absl::StrCat("a name; allowed: ", kNamePattern));
      if (text.empty() || text.size() > 4096) return WrongType(path, text, "a text of 1..4096 bytes");  // PATH_MAX
      reflection->SetString(message, field, std::string(text));
      return absl::OkStatus();
    default:
      return SetNumber(rules, message, field, path, text);
  }
}

}  // namespace stagecoach
