// The flags of `stagecoach train`, and the run spec that they and the file make together.
//
// Threading: pure but for reading files. Errors: INVALID_ARGUMENT with file, line and key, or the flag; NOT_FOUND.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protos/run.pb.h"

namespace stagecoach {

struct TrainOptions {
  std::string config;  // may be empty with --resume or --like: their record has the spec
  std::string data;
  uint32_t workers = 0;  // 0: as many as `links` means, see local_network.h
  std::string links = "none";
  // As written; checked like the keys of the file.
  std::optional<std::string> steps, seed, schedule, j, wire, threads, clusters;
  std::string run_dir;  // empty: of the file, else runs/NAME-N
  uint64_t stop_after = 0;
  bool resume = false;
  std::string like;
  std::string report;
  std::string executor = "torch";
  bool no_sample = false;
};

// Everything that can be checked before something is started. data.path and run_dir come out absolute; the folder of
// the run is not made yet. With --resume and --like the record decides (common/run_spec/run_spec_record.h); `notes`
// gets what it overrules.
absl::StatusOr<RunSpec> BuildRunSpec(const TrainOptions& options, std::vector<std::string>* notes);

}  // namespace stagecoach
