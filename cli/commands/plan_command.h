// plan: how a fleet that is written down would train a run. Asks nobody.
//
// Threading: the main thread. Returns the exit status; data goes to standard output, messages to standard error.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

struct PlanOptions {
  std::string fleet, run;
  uint32_t clusters = 0;            // 0: of the run file, or chosen
  std::string planner = "optimal";  // or the name of a baseline
  uint64_t seed = 1;                // of baselines that search or draw
  std::string format = "table";     // table, json
};
int RunPlan(const PlanOptions& options);

}  // namespace stagecoach
