#include "cli/run/run_history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

double PerToken(uint64_t bytes, uint64_t tokens) {
  return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens);
}

}  // namespace

void RunHistory::Add(const RunStatus& status) {
  empty_ = false;
  // Another plan of the same life: what was done behind its checkpoint comes again.
  if (latest_.plan().epoch() != status.plan().epoch() && !status.replans().empty()) {
    const uint64_t from = status.replans().rbegin()->from_step();
    steps_.erase(steps_.lower_bound(from), steps_.end());
    evaluations_.erase(evaluations_.upper_bound(from), evaluations_.end());
  }
  for (const StepRow& row : status.steps()) steps_[row.step()] = row;
  for (const EvaluationRow& row : status.evaluations()) evaluations_[row.after_step()] = row;
  const bool keep_workers = status.workers().empty() && !latest_.workers().empty();
  const auto workers = latest_.workers();
  latest_ = status;
  latest_.clear_steps();
  latest_.clear_evaluations();
  // A run that has ended may have released its workers; their last counters stay interesting.
  if (keep_workers) *latest_.mutable_workers() = workers;
}

std::optional<double> RunHistory::LastLoss() const {
  for (auto it = steps_.rbegin(); it != steps_.rend(); ++it) {
    if (!it->second.skip()) return it->second.loss();
  }
  return std::nullopt;
}

std::optional<double> RunHistory::ValidationLoss() const {
  if (evaluations_.empty()) return std::nullopt;
  return evaluations_.rbegin()->second.loss();
}

bool RunHistory::ended() const {
  return latest_.state() == RUN_STATE_FINISHED || latest_.state() == RUN_STATE_STOPPED ||
         latest_.state() == RUN_STATE_FAILED;
}

uint32_t RunHistory::num_clusters() const { return static_cast<uint32_t>(std::max(1, latest_.clusters_size())); }

const Plan& RunHistory::plan(uint32_t cluster) const {
  return latest_.clusters().empty() ? latest_.plan() : latest_.clusters(static_cast<int>(cluster)).plan();
}

uint64_t RunHistory::TokensPerStep() const {
  const ScheduleSpec& schedule = latest_.record().spec().schedule();
  return uint64_t{num_clusters()} * schedule.microbatches() * schedule.sequences() * schedule.sequence_tokens();
}

uint64_t RunHistory::TokensTrained() const {
  const uint64_t first = latest_.replans().empty() ? latest_.first_step() : latest_.replans().rbegin()->from_step();
  return latest_.steps_done() < first ? 0 : (latest_.steps_done() - first) * TokensPerStep();
}

uint64_t RunHistory::RecomputedSteps() const {
  uint64_t steps = 0;
  for (const ReplanRow& row : latest_.replans()) steps += row.recomputed_steps();
  return steps;
}

uint64_t RunHistory::EvaluationTokens() const {
  const RunSpec& spec = latest_.record().spec();
  return uint64_t{evaluations_.size()} * spec.evaluation().microbatches() * spec.schedule().sequences() *
         spec.schedule().sequence_tokens();
}

double RunHistory::ForwardWireBytesPerToken(uint32_t cluster, uint32_t stage) const {
  const WorkerRow* worker = WorkerOfStage(cluster, stage);
  if (worker == nullptr) return 0;
  return PerToken(worker->counters().forward_wire_bytes(), TokensTrained() / num_clusters() + EvaluationTokens());
}

double RunHistory::BackwardWireBytesPerToken(uint32_t cluster, uint32_t stage) const {
  const WorkerRow* worker = WorkerOfStage(cluster, stage + 1);
  return worker == nullptr ? 0 : PerToken(worker->counters().backward_wire_bytes(), TokensTrained() / num_clusters());
}

double RunHistory::AveragingBytesPerToken() const {
  uint64_t bytes = 0;
  for (const WorkerRow& worker : latest_.workers()) bytes += worker.counters().averaging_bytes();
  return PerToken(bytes, TokensTrained());
}

uint32_t RunHistory::num_boundaries(uint32_t cluster) const {
  const int stages = plan(cluster).stages_size();
  return stages > 1 ? static_cast<uint32_t>(stages - 1) : 0;
}

double RunHistory::PredictedTokensPerSecond() const {
  double sum = 0;
  for (uint32_t c = 0; c < num_clusters(); ++c) sum += plan(c).prediction().tokens_per_second();
  return sum;
}

double RunHistory::ComputeBoundTokensPerSecond() const {
  double sum = 0;
  for (uint32_t c = 0; c < num_clusters(); ++c) sum += plan(c).prediction().compute_bound_tokens_per_second();
  return sum;
}

std::vector<std::string> RunHistory::PlanLines() const {
  std::vector<std::string> lines;
  for (uint32_t c = 0; c < num_clusters(); ++c) {
    const std::string prefix = num_clusters() > 1 ? absl::StrCat(plan(c).cluster(), ": ") : "";
    for (const std::string& line : plan(c).explanation()) lines.push_back(prefix + line);
  }
  return lines;
}

const WorkerRow* RunHistory::WorkerOfStage(uint32_t cluster, uint32_t stage) const {
  for (const WorkerRow& worker : latest_.workers()) {
    if (worker.assigned() && worker.cluster() == cluster && worker.stage() == stage) return &worker;
  }
  return nullptr;
}

}  // namespace stagecoach
