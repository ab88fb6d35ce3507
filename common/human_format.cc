#include "common/human_format.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stagecoach {

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string HumanDuration(double seconds) {
  constexpr double kLongest = 1e12;  // beyond it a number of days says nothing
  if (!(seconds >= 0) || seconds > kLongest) return "?";
  if (seconds < 0.9995) return absl::StrFormat("%.0fms", seconds * 1e3);
  if (seconds < 59.95) return absl::StrFormat("%.1fs", seconds);
  const int64_t whole = std::llround(seconds);
  const int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (hours == 0) return absl::StrFormat("%dm%02ds", minutes, whole % 60);
  if (days == 0) return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  return absl::StrFormat("%dd%02dh", days, hours % 24);
}

}  // namespace stagecoach
