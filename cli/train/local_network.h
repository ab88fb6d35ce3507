// The workers of a local fleet and the links between them that are emulated: those of --links and --workers.
//
//   none, RATE/RTT[/JITTER[/LOSS]]     workers w0, w1, ...; every pair alike (common/link_profile.h)
//   FLEET.yaml                         the file's first workers with their names, memory limits, uplinks, downlinks and
//                                      links (docs/planning.md, "The fleet file"); how fast they compute is not
//                                      emulated
//
// Threading: pure functions but for reading the file. Errors: INVALID_ARGUMENT with the flag, or FILE:LINE.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

struct LocalWorker {
  std::string name;
  double memory_gib = 0;              // that its stage may use; 0: what is free
  double up_mbit = 0, down_mbit = 0;  // of all its links together; 0: not limited
};

struct LocalLink {
  uint32_t from = 0, to = 0;  // workers
  std::string profile;
};

struct LocalNetwork {
  std::vector<LocalWorker> workers;
  std::vector<LocalLink> links;  // each ordered pair once; empty: workers dial each other directly
};

// workers: 0 if not given, then 4 or those of the file.
absl::StatusOr<LocalNetwork> ReadLocalNetwork(const std::string& links, uint32_t workers);

}  // namespace stagecoach
