#include "cli/run/run_history.h"

namespace stagecoach {
namespace {

double PerToken(uint64_t bytes, uint64_t tokens) {
  return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens);
}

}  // namespace

void RunHistory::Add(const RunStatus& status) {
  empty_ = false;
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

uint64_t RunHistory::TokensPerStep() const {
  const ScheduleSpec& schedule = latest_.record().spec().schedule();
  return uint64_t{schedule.microbatches()} * schedule.sequences() * schedule.sequence_tokens();
}

uint64_t RunHistory::TokensTrained() const {
  return latest_.steps_done() < latest_.first_step() ? 0
                                                     : (latest_.steps_done() - latest_.first_step()) * TokensPerStep();
}

uint64_t RunHistory::EvaluationTokens() const {
  const RunSpec& spec = latest_.record().spec();
  return uint64_t{evaluations_.size()} * spec.evaluation().microbatches() * spec.schedule().sequences() *
         spec.schedule().sequence_tokens();
}

double RunHistory::ForwardWireBytesPerToken(uint32_t stage) const {
  const WorkerRow* worker = WorkerOfStage(stage);
  if (worker == nullptr) return 0;
  return PerToken(worker->counters().forward_wire_bytes(), TokensTrained() + EvaluationTokens());
}

double RunHistory::BackwardWireBytesPerToken(uint32_t stage) const {
  const WorkerRow* worker = WorkerOfStage(stage + 1);
  return worker == nullptr ? 0 : PerToken(worker->counters().backward_wire_bytes(), TokensTrained());
}

uint32_t RunHistory::num_boundaries() const {
  const int stages = latest_.plan().stages_size();
  return stages > 1 ? static_cast<uint32_t>(stages - 1) : 0;
}

const WorkerRow* RunHistory::WorkerOfStage(uint32_t stage) const {
  for (const WorkerRow& worker : latest_.workers()) {
    if (worker.assigned() && worker.stage() == stage) return &worker;
  }
  return nullptr;
}

}  // namespace stagecoach
