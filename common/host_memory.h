// Memory that this process may still take.
//
// Threading: any thread; each call reads a few files of /proc and /sys (microseconds).
// Errors: none; what cannot be read does not limit.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

// Least of the machine's available memory and, in a cgroup (v2 or v1) with a limit, of what is left of it: the limit
// less what is in use, file cache that can be dropped not counted. `root` stands in front of /proc and /sys (tests).
uint64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace stagecoach
