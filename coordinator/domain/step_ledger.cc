#include "coordinator/domain/step_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

// The two ends of the pipeline are at most tau steps apart; beyond this the peer is broken.
constexpr uint64_t kMaxPendingSteps = 1024;
constexpr int kSkipsInARow = 5;         // 02 section 7
constexpr size_t kSkipWindow = 1000;    // steps
constexpr int kSkipsInWindow = 10;      // 1 % of them
constexpr size_t kUnmeasuredSteps = 2;  // the first steps fill the pipeline and warm caches

double Seconds(MonoTime duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

StepLedger::StepLedger(uint64_t first_step, std::vector<double> earlier_losses, std::vector<uint64_t> earlier_skipped)
    : first_step_(first_step), losses_(std::move(earlier_losses)), skipped_(std::move(earlier_skipped)) {
  losses_.resize(first_step_, 0);
}

absl::Status StepLedger::CheckStep(uint64_t step) const {
  if (step < steps_done() || step >= steps_done() + kMaxPendingSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("report of step ", step, " while ", steps_done(), " steps are done"));
  }
  return absl::OkStatus();
}

absl::Status StepLedger::OnLoss(MonoTime now, uint64_t step, double loss) {
  RETURN_IF_ERROR(CheckStep(step));
  Pending& pending = pending_[step];
  if (pending.loss.has_value())
    return absl::InvalidArgumentError(absl::StrCat("loss of step ", step, " reported twice"));
  pending.loss = loss;
  Advance(now);
  return absl::OkStatus();
}

absl::Status StepLedger::OnScalar(MonoTime now, uint64_t step, const StepScalarFact& scalar) {
  RETURN_IF_ERROR(CheckStep(step));
  Pending& pending = pending_[step];
  if (pending.scalar.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("clip of step ", step, " reported twice"));
  }
  pending.scalar = scalar;
  Advance(now);
  return absl::OkStatus();
}

void StepLedger::Advance(MonoTime now) {
  while (!pending_.empty()) {
    const auto first = pending_.begin();
    if (first->first != steps_done() || !first->second.loss || !first->second.scalar) return;
    completed_.push_back({first->first, *first->second.loss, *first->second.scalar, Seconds(now - last_)});
    losses_.push_back(*first->second.loss);
    if (first->second.scalar->skip) skipped_.push_back(first->first);
    pending_.erase(first);
    last_ = now;
    if (completed_.size() == kUnmeasuredSteps) measured_from_ = now;
  }
}

std::vector<double> StepLedger::LossesUpTo(uint64_t steps) const {
  return {losses_.begin(), losses_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(steps, losses_.size()))};
}

std::vector<uint64_t> StepLedger::SkippedUpTo(uint64_t steps) const {
  return {skipped_.begin(), std::lower_bound(skipped_.begin(), skipped_.end(), steps)};
}

std::string StepLedger::SkipVerdict() const {
  int row = 0, in_window = 0;
  const size_t size = completed_.size(), window = std::min(size, kSkipWindow);
  for (size_t i = size - window; i < size; ++i) {
    row = completed_[i].scalar.skip ? row + 1 : 0;
    in_window += completed_[i].scalar.skip ? 1 : 0;
  }
  if (row >= kSkipsInARow) {
    return absl::StrCat("the last ", row, " steps were skipped (loss or gradients not finite), from step ",
                        steps_done() - row, "; lower the learning rate or the wire's compression");
  }
  if (in_window > kSkipsInWindow) {
    return absl::StrCat(in_window, " of the last ", window,
                        " steps were skipped (loss or gradients not finite); lower "
                        "the learning rate or the wire's compression");
  }
  return "";
}

double StepLedger::StepsPerSecond() const {
  if (completed_.size() <= kUnmeasuredSteps) return 0;
  const double seconds = Seconds(last_ - measured_from_);
  return seconds > 0 ? static_cast<double>(completed_.size() - kUnmeasuredSteps) / seconds : 0;
}

double StepLedger::ElapsedSeconds(MonoTime now) const { return started_.count() == 0 ? 0 : Seconds(now - started_); }

}  // namespace stagecoach
