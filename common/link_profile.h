// How slow an emulated link is, as people write it: RATE/RTT[/JITTER[/LOSS]], e.g. 80mbit/50ms, 10mbit/150ms/5ms/0.1%.
//
// Threading: pure. Errors: INVALID_ARGUMENT with the text, the part that is wrong, and what is allowed.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

struct LinkProfile {
  double bytes_per_second = 0;                // each direction; 0 = not limited
  std::chrono::nanoseconds one_way_delay{0};  // half of the RTT that was written
  std::chrono::nanoseconds jitter{0};         // one way, plus or minus
  double loss = 0;                            // of packets of 1460 bytes, [0, 0.5]
};

// "none": no limit and no delay. RATE: kbit, mbit or gbit, 1 kbit..100 gbit. RTT: us, ms or s, at most 10 s. JITTER at
// most half the RTT. LOSS in per cent.
absl::StatusOr<LinkProfile> ParseLinkProfile(absl::string_view text);

// The RATE alone, in bytes a second.
absl::StatusOr<double> ParseLinkRate(absl::string_view text);

}  // namespace stagecoach
