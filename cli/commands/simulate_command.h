// simulate: runs a plan of a fleet that is written down in virtual time, and compares with what was predicted.
//
// Threading: the main thread. Returns the exit status; data goes to standard output, messages to standard error.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

struct SimulateOptions {
  std::string fleet, run;
  std::string plan;  // a plan's JSON; empty: planned here
  uint32_t clusters = 0;
  uint64_t steps = 0;    // measured; 0: so many that they have 1,000 microbatches
  double jitter_ms = 0;  // of every link, each way
  uint64_t seed = 1;
  std::string format = "table";  // table, json
};
int RunSimulate(const SimulateOptions& options);

}  // namespace stagecoach
