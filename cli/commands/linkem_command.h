// `stagecoach linkem`: emulated links until SIGTERM. Prints the bound ports as one line of JSON, and byte counts at the
// end.
//
// Threading: the main thread. Returns the exit status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

struct LinkemOptions {
  std::vector<std::string> links;  // see link_emulator_config.h
  std::string profile = "none";
  std::string config;
  uint64_t seed = 1;
  std::string port_file;  // gets the line of JSON too
};

int RunLinkem(const LinkemOptions& options);

}  // namespace stagecoach
