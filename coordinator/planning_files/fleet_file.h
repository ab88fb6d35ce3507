// The fleet file: workers, what they compute, and their links, written by people (docs/planning.md, "The fleet file").
//
//   fleet.yaml:7: workers[0].up_mbits: unknown key; allowed: name, count, host, ...
//
// Threading: pure functions but for reading files. Errors: INVALID_ARGUMENT with FILE:LINE, key and what is allowed;
// NOT_FOUND: no such file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/strict_yaml/yaml_message.h"
#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/planning_files/run_model.h"
#include "protos/fleet.pb.h"

namespace stagecoach {

// A file that is right in itself, and where its keys are.
struct WrittenFleet {
  FleetFile file;
  std::string file_name;
  YamlLines lines;
};

absl::StatusOr<WrittenFleet> ParseFleetFile(absl::string_view yaml, const std::string& file_name);
absl::StatusOr<WrittenFleet> ReadFleetFile(const std::string& path);

// True: every worker's limit is a GPU's, so what the host holds does not count against it.
bool AllWorkersAreGpus(const FleetFile& file);

// The fleet but for what its workers compute (FleetWorker::kinds is empty): counts expanded.
Fleet FleetWithoutTimes(const WrittenFleet& written);

// The fleet as the planner sees it with this model: counts expanded, times from the workers' rows, else from their
// devices' rows, else from the devices' tflops.
absl::StatusOr<Fleet> FleetFor(const WrittenFleet& written, const RunModel& model);

// A file of measured workers that FleetFor makes the same fleet of (to the last bits of a rate), a row for each.
// `model`: kinds that do not occur in it are left out.
FleetFile FileOfFleet(const Fleet& fleet, const RunModel& model);

}  // namespace stagecoach
