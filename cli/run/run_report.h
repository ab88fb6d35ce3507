// The report of a run that has ended: as JSON (run_dir/report.json, --report) and as text for the terminal.
//
// Threading: pure functions. Errors: of writing files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/run/run_history.h"

namespace stagecoach {

struct ReportContext {
  std::string run_dir;
  std::string link_profile;    // as given to --links; "none"
  std::vector<double> losses;  // of the whole schedule (from the checkpoint); empty: those that were watched
  std::string error = "";      // why the run could not be followed to its end; empty: see its state
};

// Every key of docs/command-line.md.
nlohmann::ordered_json MakeRunReport(const RunHistory& history, const ReportContext& context);

// A page for people. `report` is what MakeRunReport returned.
std::string FormatRunReport(const nlohmann::ordered_json& report);

// INVALID_ARGUMENT: WriteJsonFile could not write there. For a check before the work that the file is to report.
absl::Status CheckWritable(const std::string& flag, const std::string& path);

absl::Status WriteJsonFile(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace stagecoach
