// At which of its own steps a cluster averages with the others, and where the result enters its weights:
//
//   round at step t    t = H, 2H, ...  and the last step of the run     takes part with W^(t)
//   its result enters  W^(min(t + tau_a, last step)); tau_a = 0 and the last round replace W^(t) before it is used
//
// The steps decide alone, not where a life of the run ends: a run that was stopped and resumed has the same rounds.
//
// Precondition: tau_a < H, so that a cluster has one round at a time.
//
// Threading: a value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stagecoach {

struct RoundSchedule {
  uint64_t every_steps = 0;  // H; 0: no rounds
  uint64_t delay_steps = 0;  // tau_a

  bool enabled() const { return every_steps > 0; }
  bool IsRound(uint64_t step) const { return enabled() && step > 0 && step % every_steps == 0; }
  // Version that the result of the round at `step` enters, in a run of `total_steps`.
  uint64_t EntersAt(uint64_t step, uint64_t total_steps) const { return std::min(step + delay_steps, total_steps); }
  // Rounds that have begun once `step` < total_steps steps are done, and the step of the last of them.
  uint64_t BegunBy(uint64_t step) const { return enabled() ? step / every_steps : 0; }
  uint64_t LastBegunBy(uint64_t step) const { return BegunBy(step) * every_steps; }
  // True: the result of the last of them enters a version that is not made yet.
  bool OpenAfter(uint64_t step, uint64_t total_steps) const {
    return BegunBy(step) > 0 && EntersAt(LastBegunBy(step), total_steps) > step;
  }
};

}  // namespace stagecoach
