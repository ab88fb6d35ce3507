#include "common/host_port.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/durable_file.h"

namespace stagecoach {

bool IsHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  const absl::string_view digits = text.substr(colon + 1);
  for (const char c : digits) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;  // SimpleAtoi takes signs and spaces
  }
  uint32_t port = 0;
  return absl::SimpleAtoi(digits, &port) && port <= UINT16_MAX;
}

absl::Status CheckHostPort(absl::string_view flag, absl::string_view text) {
  if (IsHostPort(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": not host:port with a port of 0..65535: ", text));
}

bool IsLoopback(absl::string_view text) {
  const absl::string_view host = text.substr(0, text.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

absl::Status WritePortFile(const std::string& path, int port) {
  if (path.empty()) return absl::OkStatus();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return WriteDurably(SystemFiles(), folder, name, absl::StrCat(port, "\n"));
}

}  // namespace stagecoach
