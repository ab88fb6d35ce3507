// Version of the programs, as `--version` prints it and run records name it.
#pragma once

namespace stagecoach {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace stagecoach
