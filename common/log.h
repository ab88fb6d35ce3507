// One line per event on stderr: level=info node=w1 event=started port=4711 reason="two words". Values that are empty or
// hold anything but plain characters are quoted and escaped, so that a peer's text can neither end a line nor add a
// key.
//
// Threading: safe from any thread; a line is one write. Never call it per microbatch: it may block on a full pipe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

enum class LogLevel { kInfo, kWarning, kError };

using LogFields = std::vector<std::pair<absl::string_view, std::string>>;

void Log(LogLevel level, absl::string_view node, absl::string_view event, const LogFields& fields = {});

// The line that Log writes, without the line break. Values are cut to kMaxLogValueBytes and then end in "...".
std::string FormatLogLine(LogLevel level, absl::string_view node, absl::string_view event, const LogFields& fields);

inline constexpr size_t kMaxLogValueBytes = 200;  // enough for a status message; a hostile peer cannot fill the disk

}  // namespace stagecoach
