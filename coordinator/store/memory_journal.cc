#include <map>

#include "absl/strings/str_cat.h"
#include "coordinator/store/run_journal.h"

namespace stagecoach {
namespace {

class MemoryJournal final : public RunJournal {
 public:
  absl::StatusOr<uint64_t> NextTerm() override { return ++term_; }
  absl::StatusOr<uint64_t> NextEpoch() override { return ++epoch_; }
  absl::Status SaveRun(const std::string& run, const JournalRun& row) override {
    runs_[run] = row;
    return absl::OkStatus();
  }
  absl::StatusOr<JournalRun> ReadRun(const std::string& run) override {
    const auto found = runs_.find(run);
    if (found == runs_.end()) return absl::NotFoundError(absl::StrCat("no run ", run, " in the journal"));
    return found->second;
  }
  absl::Status Append(const std::string& run, const JournalBatch& batch) override {
    Rows& rows = rows_[run];
    for (const auto& step : batch.steps) rows.steps[step.step] = step;
    for (const auto& evaluation : batch.evaluations) rows.evaluations[evaluation.after_step] = evaluation;
    for (const auto& checkpoint : batch.checkpoints) rows.checkpoints[checkpoint.step] = checkpoint;
    return absl::OkStatus();
  }
  absl::StatusOr<JournalBatch> Read(const std::string& run) override {
    JournalBatch batch;
    for (const auto& [key, row] : rows_[run].steps) batch.steps.push_back(row);
    for (const auto& [key, row] : rows_[run].evaluations) batch.evaluations.push_back(row);
    for (const auto& [key, row] : rows_[run].checkpoints) batch.checkpoints.push_back(row);
    return batch;
  }

 private:
  struct Rows {
    std::map<uint64_t, JournalStep> steps;
    std::map<uint64_t, JournalEvaluation> evaluations;
    std::map<uint64_t, JournalCheckpoint> checkpoints;
  };
  uint64_t term_ = 0, epoch_ = 0;
  std::map<std::string, JournalRun> runs_;
  std::map<std::string, Rows> rows_;
};

}  // namespace

std::unique_ptr<RunJournal> CreateMemoryJournal() { return std::make_unique<MemoryJournal>(); }

}  // namespace stagecoach
