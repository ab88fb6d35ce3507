// Notices a stage that computes slower than its plan counts on: throttled, busy with something else, or measured badly.
//
// Slow once the estimate has been above 1.5 times the plan for 20 microbatches in a row, in order again once it is
// below 1.2 times the plan: one bad step does nothing, and a stage at the limit does not flicker.
//
// Threading: a value, confined to the coordinator loop.
#pragma once

#include <cstdint>

#include "coordinator/domain/estimate.h"

namespace stagecoach {

class SpeedWatch {
 public:
  explicit SpeedWatch(double planned_seconds) : planned_seconds_(planned_seconds) {}

  // Totals since the stage began; they only grow. Totals that shrink or make no sense are ignored. True: slow()
  // changed.
  bool OnTotals(uint64_t microbatches, double training_seconds);

  bool slow() const { return slow_; }
  double planned_seconds() const { return planned_seconds_; }  // of a microbatch
  const Estimate& seconds() const { return seconds_; }         // of a microbatch

 private:
  double planned_seconds_;
  Estimate seconds_;
  uint64_t microbatches_ = 0, microbatches_above_ = 0;
  double training_seconds_ = 0;
  bool slow_ = false;
};

}  // namespace stagecoach
