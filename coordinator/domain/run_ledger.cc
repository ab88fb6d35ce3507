#include "coordinator/domain/run_ledger.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

// Evaluations that wait for a slower cluster; beyond this one of them does not report.
constexpr size_t kMaxOpenEvaluations = 1024;

}  // namespace

RunLedger::RunLedger(uint64_t first_step, uint32_t microbatches_per_step, std::vector<ClusterLedgerStart> clusters)
    : microbatches_per_step_(microbatches_per_step) {
  for (ClusterLedgerStart& start : clusters) {
    clusters_.push_back({start.steps,
                         StepLedger(first_step, std::move(start.earlier_losses), std::move(start.earlier_skipped)),
                         {},
                         0});
  }
}

void RunLedger::Start(MonoTime now) {
  last_ = now;
  for (Cluster& cluster : clusters_) cluster.ledger.Start(now);
}

absl::Status RunLedger::OnLoss(MonoTime now, size_t cluster, uint64_t step, double loss) {
  RETURN_IF_ERROR(clusters_[cluster].ledger.OnLoss(now, step, loss));
  Advance(now, cluster);
  return absl::OkStatus();
}

absl::Status RunLedger::OnScalar(MonoTime now, size_t cluster, uint64_t step, const StepScalarFact& scalar) {
  RETURN_IF_ERROR(clusters_[cluster].ledger.OnScalar(now, step, scalar));
  Advance(now, cluster);
  return absl::OkStatus();
}

void RunLedger::Advance(MonoTime now, size_t index) {
  Cluster& cluster = clusters_[index];
  for (; cluster.tallied < cluster.ledger.completed().size(); ++cluster.tallied) {
    const uint64_t n = (first_step() + cluster.tallied) * microbatches_per_step_;
    for (uint64_t j = 0; j < microbatches_per_step_; ++j) {
      cluster.dealt.Add(cluster.steps.GlobalMicrobatch(n + j, microbatches_per_step_));
    }
  }
  for (;;) {
    const size_t row = completed_.size();
    CompletedStep step{first_step() + row, 0, {1, 0, false}, std::chrono::duration<double>(now - last_).count()};
    for (const Cluster& each : clusters_) {
      if (each.ledger.completed().size() <= row) return;
      const CompletedStep& own = each.ledger.completed()[row];
      step.loss += own.loss;
      step.scalar.clip = std::min(step.scalar.clip, own.scalar.clip);
      step.scalar.square_sum = std::max(step.scalar.square_sum, own.scalar.square_sum);
      step.scalar.skip |= own.scalar.skip;
    }
    if (clusters_.size() == 1) {
      step = clusters_[0].ledger.completed()[row];
    } else {
      step.loss /= static_cast<double>(clusters_.size());
    }
    completed_.push_back(step);
    last_ = now;
  }
}

std::optional<double> RunLedger::OnEvaluation(size_t cluster, uint64_t after_step, double loss) {
  if (evaluations_.size() >= kMaxOpenEvaluations && evaluations_.count(after_step) == 0) return std::nullopt;
  std::map<size_t, double>& open = evaluations_[after_step];
  open.emplace(cluster, loss);
  if (open.size() < clusters_.size()) return std::nullopt;
  double sum = 0;
  for (const auto& [index, value] : open) sum += value;
  sum /= static_cast<double>(clusters_.size());
  evaluations_.erase(after_step);
  return sum;
}

std::vector<double> RunLedger::LossesUpTo(uint64_t steps) const {
  std::vector<double> mean = clusters_[0].ledger.LossesUpTo(steps);
  for (size_t c = 1; c < clusters_.size(); ++c) {
    const std::vector<double> own = clusters_[c].ledger.LossesUpTo(steps);
    mean.resize(std::min(mean.size(), own.size()));
    for (size_t t = 0; t < mean.size(); ++t) mean[t] += own[t];
  }
  if (clusters_.size() == 1) return mean;
  for (double& loss : mean) loss /= static_cast<double>(clusters_.size());
  return mean;
}

std::vector<uint64_t> RunLedger::SkippedUpTo(uint64_t steps) const {
  std::set<uint64_t> skipped;
  for (const Cluster& cluster : clusters_) {
    const std::vector<uint64_t> own = cluster.ledger.SkippedUpTo(steps);
    skipped.insert(own.begin(), own.end());
  }
  return {skipped.begin(), skipped.end()};
}

std::string RunLedger::SkipVerdict() const {
  for (size_t c = 0; c < clusters_.size(); ++c) {
    const std::string verdict = clusters_[c].ledger.SkipVerdict();
    if (!verdict.empty()) return clusters_.size() == 1 ? verdict : absl::StrCat("cluster ", c, ": ", verdict);
  }
  return "";
}

double RunLedger::StepsPerSecond() const {
  double sum = 0;
  for (const Cluster& cluster : clusters_) sum += cluster.ledger.StepsPerSecond();
  return sum;
}

void RunLedger::OnConsumed(const std::string& worker, size_t cluster, uint64_t steps, const DataTally& tally) {
  consumed_[worker] = {cluster, steps, tally};
}

absl::Status RunLedger::CheckData() const {
  for (const auto& [worker, consumed] : consumed_) {
    const Cluster& cluster = clusters_[consumed.cluster];
    if (cluster.ledger.steps_done() != consumed.steps || cluster.dealt == consumed.tally) continue;
    return absl::DataLossError(absl::StrCat(
        "worker ", worker, " trained on other data than its cluster was dealt: ", consumed.tally.microbatches(),
        " microbatches, dealt were ", cluster.dealt.microbatches(), " for steps ", first_step(), "..", consumed.steps));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
