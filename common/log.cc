#include "common/log.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

absl::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("._-+:/@%,").find(c) != absl::string_view::npos;
}

void AppendField(absl::string_view key, absl::string_view value, std::string* line) {
  absl::StrAppend(line, line->empty() ? "" : " ", key, "=");
  const absl::string_view kept = value.substr(0, kMaxLogValueBytes);
  const bool cut = kept.size() < value.size();
  if (!cut && !kept.empty() && std::all_of(kept.begin(), kept.end(), IsPlain)) {
    absl::StrAppend(line, kept);
  } else {
    absl::StrAppend(line, "\"", absl::CHexEscape(kept), cut ? "...\"" : "\"");
  }
}

}  // namespace

void Log(LogLevel level, absl::string_view node, absl::string_view event, const LogFields& fields) {
  const std::string line = FormatLogLine(level, node, event, fields) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string FormatLogLine(LogLevel level, absl::string_view node, absl::string_view event, const LogFields& fields) {
  std::string line;
  AppendField("level", NameOf(level), &line);
  AppendField("node", node, &line);
  AppendField("event", event, &line);
  for (const auto& [key, value] : fields) AppendField(key, value, &line);
  return line;
}

}  // namespace stagecoach
