// Reads what a run starts from: its data, and for --resume and --like the record of an earlier run.
//
// Threading: blocking file work; the store thread. Errors: INVALID_ARGUMENT, NOT_FOUND, DATA_LOSS with path and reason,
// INVALID_ARGUMENT also if the spec contradicts the record (common/run_spec/run_spec_record.h), FAILED_PRECONDITION if
// the folder or the data are not those of the earlier run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protos/checkpoint.pb.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

struct RunInputs {
  RunSpec spec;  // FillDefaults applied; of the earlier run where there is one
  std::vector<DataShard> shards;
  uint64_t data_tokens = 0;
  uint32_t vocabulary = 0;
  uint64_t training_windows = 0, evaluation_windows = 0;
  double bigram_loss = 0;
  std::optional<RunRecord> earlier;              // its J table, M, codecs and so on are kept
  std::optional<CheckpointManifest> checkpoint;  // to resume from
  uint64_t stop_after = 0;                       // in steps of M microbatches
  uint64_t updates_per_step = 1;                 // of `earlier`, if it is a pipedream run
  std::vector<std::string> notes;                // for the plan's explanation
  std::string replan_reason;                     // not empty: of a run that goes on with another plan
};

absl::StatusOr<RunInputs> ReadRunInputs(const SubmitRequest& request);

// Turns the inputs of a running run, whose spec is that of its record, into those of its next plan: from the newest
// checkpoint that verifies. NOT_FOUND: none does.
absl::Status TakeUpNewestCheckpoint(absl::string_view reason, RunInputs* inputs);

}  // namespace stagecoach
