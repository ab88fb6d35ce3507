// host:port as text, of flags.
//
// Threading: pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Not empty, and a port of 0..65535.
bool IsHostPort(absl::string_view text);

// INVALID_ARGUMENT naming the flag.
absl::Status CheckHostPort(absl::string_view flag, absl::string_view text);

// 127.x.y.z, localhost or [::1], with or without a port.
bool IsLoopback(absl::string_view text);

// Tells who started a program which port it got, in the file `path` ("": nobody asks).
absl::Status WritePortFile(const std::string& path, int port);

}  // namespace stagecoach
