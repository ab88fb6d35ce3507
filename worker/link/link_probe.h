// Measures one link: the least round trip of 8 small calls, then the rate of large ones on the warm connection.
//
// Threading: blocks its caller for at most about 2 s after the connection is up; call it on a thread of its own, never
// on a loop. Errors: UNAVAILABLE (cannot connect), DEADLINE_EXCEEDED (no answer in time).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

struct LinkProbeResult {
  double rtt_seconds = 0;
  double bytes_per_second = 0;
};

struct LinkProbeOptions {
  double connect_seconds = 10.0;  // retries the connection for so long
  double rate_seconds = 1.5;      // most time spent on large messages
};

absl::StatusOr<LinkProbeResult> ProbeLink(const std::string& address, const LinkProbeOptions& options = {});

}  // namespace stagecoach
