// What is known about the steps of a run: the loss from the last stage and the clip scalar from the first one, merged
// by step; when each was complete; when too many were skipped.
//
// Threading: a value, confined to the coordinator loop. Errors: INVALID_ARGUMENT: a step out of order or reported twice
// with other values.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

using MonoTime = std::chrono::nanoseconds;

struct StepScalarFact {
  double clip = 1, square_sum = 0;
  bool skip = false;
};

struct CompletedStep {
  uint64_t step = 0;
  double loss = 0;
  StepScalarFact scalar;
  double seconds = 0;  // since the completion of the step before (the first: since the start)
};

class StepLedger {
 public:
  // A life that starts after first_step steps with the losses and skipped steps of earlier lives.
  StepLedger(uint64_t first_step, std::vector<double> earlier_losses, std::vector<uint64_t> earlier_skipped);

  void Start(MonoTime now) { started_ = last_ = now; }
  absl::Status OnLoss(MonoTime now, uint64_t step, double loss);
  absl::Status OnScalar(MonoTime now, uint64_t step, const StepScalarFact& scalar);

  uint64_t first_step() const { return first_step_; }
  uint64_t steps_done() const { return first_step_ + completed_.size(); }
  const std::vector<CompletedStep>& completed() const { return completed_; }  // of this life, ascending
  // Of all lives up to `steps` steps: the manifest's lists.
  std::vector<double> LossesUpTo(uint64_t steps) const;
  std::vector<uint64_t> SkippedUpTo(uint64_t steps) const;
  uint64_t num_skipped() const { return skipped_.size(); }
  // Why the run must stop: 5 skips in a row, or more than 1 % of the last 1,000 steps. Empty if it need not.
  std::string SkipVerdict() const;
  // Steps a second since the start of this life, the first two steps left out; 0 until three are done.
  double StepsPerSecond() const;
  double ElapsedSeconds(MonoTime now) const;

 private:
  struct Pending {
    std::optional<double> loss;
    std::optional<StepScalarFact> scalar;
  };
  absl::Status CheckStep(uint64_t step) const;
  void Advance(MonoTime now);

  const uint64_t first_step_;
  std::vector<double> losses_;
  std::vector<uint64_t> skipped_;
  std::vector<CompletedStep> completed_;
  std::map<uint64_t, Pending> pending_;
  MonoTime started_{0}, last_{0}, measured_from_{0};
};

}  // namespace stagecoach
