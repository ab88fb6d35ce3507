// Commands that talk to a coordinator that runs already: submit, status, stop.
//
// Threading: the main thread. Each returns the exit status; data goes to standard output, messages to standard error.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

struct SubmitOptions {
  std::string config;
  std::string coordinator;
  uint32_t workers = 0;  // 0 = all that are there
  uint64_t stop_after = 0;
  bool resume = false;
  std::string like;
  bool watch = false;
  std::string report;  // with watch: write the report to this file too
};
int RunSubmit(const SubmitOptions& options);

struct StatusOptions {
  std::string coordinator;
  std::string format = "table";  // table, json
};
int RunStatusCommand(const StatusOptions& options);

struct StopOptions {
  std::string coordinator;
  std::string run;  // empty: the one that runs
};
int RunStop(const StopOptions& options);

}  // namespace stagecoach
