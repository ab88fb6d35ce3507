// What the coordinator must not forget: runs and their records, epochs (never reused), terms, steps, evaluations,
// checkpoints. Two implementations: memory (tests) and SQLite.
//
// Threading: one thread, the store thread. Every call is durable when it returns.
// Errors: UNAVAILABLE (another coordinator uses the folder), RESOURCE_EXHAUSTED (disk full), INTERNAL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach {

struct JournalStep {
  uint64_t step = 0;
  double loss = 0, clip = 0, square_sum = 0;
  bool skip = false;
};
struct JournalEvaluation {
  uint64_t after_step = 0;
  double loss = 0;
};
struct JournalCheckpoint {
  uint64_t step = 0;
  std::string weight_hash;
};

// A round between the clusters whose result is valid.
struct JournalRound {
  uint64_t round = 0, step = 0;
  std::string hash;  // over the hashes of its shards
};

// Everything that one commit writes.
struct JournalBatch {
  std::vector<JournalStep> steps;
  std::vector<JournalEvaluation> evaluations;
  std::vector<JournalCheckpoint> checkpoints;
  std::vector<JournalRound> rounds;
  bool empty() const { return steps.empty() && evaluations.empty() && checkpoints.empty() && rounds.empty(); }
};

struct JournalRun {
  std::string state;   // of the run machine: number of its phase, blank, detail for people
  std::string record;  // protobuf JSON
  uint64_t epoch = 0;
};

// A run as it was last written.
struct JournalRunSummary {
  std::string run, state;
  uint64_t steps = 0;  // that all its clusters have done
};

class RunJournal {
 public:
  virtual ~RunJournal() = default;
  // A new number for each life of the coordinator, from 1.
  virtual absl::StatusOr<uint64_t> NextTerm() = 0;
  // A number larger than any it has ever returned. Call before the first message that carries it.
  virtual absl::StatusOr<uint64_t> NextEpoch() = 0;
  virtual absl::Status SaveRun(const std::string& run, const JournalRun& row) = 0;
  virtual absl::StatusOr<JournalRun> ReadRun(const std::string& run) = 0;  // NOT_FOUND
  // Newest plan first, those that were never planned last; at most `limit`.
  virtual absl::StatusOr<std::vector<JournalRunSummary>> ListRuns(size_t limit) = 0;
  // Forgets what the run and its clusters (RUN/CLUSTER) did at first_step and later: an earlier run of that name, or
  // steps after the checkpoint that it goes on from.
  virtual absl::Status Rewind(const std::string& run, uint64_t first_step) = 0;
  // One transaction. Rows that are there already are replaced.
  virtual absl::Status Append(const std::string& run, const JournalBatch& batch) = 0;
  virtual absl::StatusOr<JournalBatch> Read(const std::string& run) = 0;  // ascending
};

std::unique_ptr<RunJournal> CreateMemoryJournal();
// state_dir/journal.sqlite, made if it is not there. WAL, synchronous=FULL. The folder is this process's alone while
// the journal is open (flock of state_dir/lock; the kernel drops it with the process): UNAVAILABLE for any other one.
absl::StatusOr<std::unique_ptr<RunJournal>> OpenSqliteJournal(const std::string& state_dir);

}  // namespace stagecoach
