// What `stagecoach linkem` reads: --link arguments, or a YAML file of links with a profile each.
//
//   --link a:b=127.0.0.1:0->127.0.0.1:5000        listen address -> target; the target may be @PORT_FILE
//   seed: 1
//   profile: 80mbit/50ms                          of links without their own
//   links: [{from: a, to: b, listen: 0, target: "127.0.0.1:5000", profile: 10mbit/150ms}]
//   ends: [{name: a, up: 20mbit, down: 100mbit}]  rates that all links of an end share; either may be missing
//
// Threading: pure. Errors: INVALID_ARGUMENT with the argument or FILE:LINE, and what is allowed; NOT_FOUND.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/linkem/link_emulator.h"

namespace stagecoach {

struct LinkEmulatorConfig {
  std::vector<EmulatedLink> links;
  std::vector<EmulatedEnd> ends;
  uint64_t seed = 1;
};

absl::StatusOr<LinkShape> ParseLinkShape(const std::string& profile);
absl::StatusOr<EmulatedLink> ParseLinkArgument(const std::string& argument, const LinkShape& shape);
// `profile`: of links that have none, when the file has none either.
absl::StatusOr<LinkEmulatorConfig> ReadLinkEmulatorConfig(const std::string& path, const std::string& profile);

}  // namespace stagecoach
