// Numbers as people read them in progress lines and reports: 1.5 MiB, 2m05s.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

// 999 B, 1.5 KiB, 12.0 MiB, 3.2 GiB.
std::string HumanBytes(uint64_t bytes);

// 250ms, 3.5s, 2m05s, 1h02m, 3d04h. Not finite or negative: "?".
std::string HumanDuration(double seconds);

}  // namespace stagecoach
