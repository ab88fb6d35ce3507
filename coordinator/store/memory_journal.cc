#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/match.h"
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
  absl::StatusOr<std::vector<JournalRunSummary>> ListRuns(size_t limit) override {
    std::vector<JournalRunSummary> list;
    for (const auto& [run, row] : runs_) list.push_back({run, row.state, StepsOf(run)});
    std::stable_sort(list.begin(), list.end(),
                     [this](const auto& a, const auto& b) { return runs_[a.run].epoch > runs_[b.run].epoch; });
    if (list.size() > limit) list.resize(limit);
    return list;
  }
  absl::Status Rewind(const std::string& run, uint64_t first_step) override {
    for (auto& [name, rows] : rows_) {
      if (name != run && !absl::StartsWith(name, run + "/")) continue;
      rows.steps.erase(rows.steps.lower_bound(first_step), rows.steps.end());
      rows.evaluations.erase(rows.evaluations.upper_bound(first_step), rows.evaluations.end());
      rows.checkpoints.erase(rows.checkpoints.upper_bound(first_step), rows.checkpoints.end());
      std::erase_if(rows.rounds, [&](const auto& row) { return row.second.step > first_step; });
    }
    return absl::OkStatus();
  }
  absl::Status Append(const std::string& run, const JournalBatch& batch) override {
    Rows& rows = rows_[run];
    for (const auto& step : batch.steps) rows.steps[step.step] = step;
    for (const auto& evaluation : batch.evaluations) rows.evaluations[evaluation.after_step] = evaluation;
    for (const auto& checkpoint : batch.checkpoints) rows.checkpoints[checkpoint.step] = checkpoint;
    for (const auto& round : batch.rounds) rows.rounds[round.round] = round;
    return absl::OkStatus();
  }
  absl::StatusOr<JournalBatch> Read(const std::string& run) override {
    JournalBatch batch;
    for (const auto& [key, row] : rows_[run].steps) batch.steps.push_back(row);
    for (const auto& [key, row] : rows_[run].evaluations) batch.evaluations.push_back(row);
    for (const auto& [key, row] : rows_[run].checkpoints) batch.checkpoints.push_back(row);
    for (const auto& [key, row] : rows_[run].rounds) batch.rounds.push_back(row);
    return batch;
  }

 private:
  struct Rows {
    std::map<uint64_t, JournalStep> steps;
    std::map<uint64_t, JournalEvaluation> evaluations;
    std::map<uint64_t, JournalCheckpoint> checkpoints;
    std::map<uint64_t, JournalRound> rounds;
  };
  uint64_t StepsOf(const std::string& run) const {
    std::optional<uint64_t> least;
    for (const auto& [name, rows] : rows_) {
      if (rows.steps.empty() || (name != run && !absl::StartsWith(name, run + "/"))) continue;
      least = std::min(least.value_or(UINT64_MAX), rows.steps.rbegin()->first + 1);
    }
    return least.value_or(0);
  }

  uint64_t term_ = 0, epoch_ = 0;
  std::map<std::string, JournalRun> runs_;
  std::map<std::string, Rows> rows_;
};

}  // namespace

std::unique_ptr<RunJournal> CreateMemoryJournal() { return std::make_unique<MemoryJournal>(); }

}  // namespace stagecoach
