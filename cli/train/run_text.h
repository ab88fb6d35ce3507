// The data of a run before it starts: text becomes token shards.
//
// Threading: one thread. Errors: NOT_FOUND, INVALID_ARGUMENT (data), RESOURCE_EXHAUSTED (disk),
// CANCELLED (Ctrl-C).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/run.pb.h"

namespace stagecoach {

// A folder with dataset.json, or a .bin file.
bool IsPreparedData(const std::string& path);

// Prepares text into run_dir/data and points spec->data.path there; leaves prepared data alone.
absl::Status PrepareRunData(RunSpec* spec);

}  // namespace stagecoach
