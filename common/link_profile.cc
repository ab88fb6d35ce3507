#include "common/link_profile.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

using Units = std::vector<std::pair<absl::string_view, double>>;

constexpr double kMaxBitsPerSecond = 100e9;
constexpr double kMinBitsPerSecond = 1e3;
constexpr double kMaxRttSeconds = 10;  // beyond it TCP itself gives up
constexpr double kMaxLoss = 0.5;

absl::Status Wrong(absl::string_view text, absl::string_view part, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("link profile '", text, "': '", part, "' is not ", allowed,
                                                 "; write none, or RATE/RTT[/JITTER[/LOSS]] like 80mbit/50ms"));
}

// A number directly followed by one of `units`. Longer units stand before shorter ones that end them.
bool ParseWithUnit(absl::string_view part, const Units& units, double* value) {
  for (const auto& [unit, factor] : units) {
    if (part.size() <= unit.size() || part.substr(part.size() - unit.size()) != unit) continue;
    double number = 0;
    if (!absl::SimpleAtod(part.substr(0, part.size() - unit.size()), &number) || !(number >= 0)) return false;
    *value = number * factor;
    return true;
  }
  return false;
}

bool ParseSeconds(absl::string_view part, double* seconds) {
  return ParseWithUnit(part, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, seconds);
}

std::chrono::nanoseconds Nanoseconds(double seconds) { return std::chrono::nanoseconds(std::llround(seconds * 1e9)); }

}  // namespace

absl::StatusOr<double> ParseLinkRate(absl::string_view text) {
  double bits = 0;
  if (!ParseWithUnit(absl::AsciiStrToLower(text), {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}, &bits) ||
      bits < kMinBitsPerSecond || bits > kMaxBitsPerSecond) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a rate of 1kbit..100gbit"));
  }
  return bits / 8;
}

absl::StatusOr<LinkProfile> ParseLinkProfile(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "none") return LinkProfile{};
  const std::vector<std::string> parts = absl::StrSplit(lower, '/');
  if (parts.size() < 2 || parts.size() > 4) return Wrong(text, text, "a link profile");
  double rtt = 0, jitter = 0, loss = 0;
  const absl::StatusOr<double> rate = ParseLinkRate(parts[0]);
  if (!rate.ok()) return Wrong(text, parts[0], "a rate of 1kbit..100gbit");
  if (!ParseSeconds(parts[1], &rtt) || rtt > kMaxRttSeconds)
    return Wrong(text, parts[1], "a round-trip time of 0ms..10s");
  if (parts.size() > 2 && (!ParseSeconds(parts[2], &jitter) || jitter > rtt / 2)) {
    return Wrong(text, parts[2], "a jitter of at most half the round-trip time");
  }
  if (parts.size() > 3 && (!ParseWithUnit(parts[3], {{"%", 0.01}}, &loss) || loss > kMaxLoss)) {
    return Wrong(text, parts[3], "a loss of 0%..50%");
  }
  return LinkProfile{*rate, Nanoseconds(rtt / 2), Nanoseconds(jitter), loss};
}

}  // namespace stagecoach
