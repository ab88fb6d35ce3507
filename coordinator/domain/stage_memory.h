// Memory that a stage needs (docs/architecture.md, "Memory"):
//
//   parameters * (4 (tau + 2) + moments + 4 if updates feed their error back)      weights of tau + 1 versions,
//   gradient
//   + 2 N F                                                     inputs kept for the backward pass, frames on their way
//   + parameters * (20 + 8 with outer momentum + 8 with error feedback of the exchange)     rounds between clusters
//   + activations of one microbatch through the largest unit    recomputed; of N microbatches if nothing is recomputed
//
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stagecoach {

struct StageMemoryRule {
  uint32_t lag = 0;              // tau: most updates between a microbatch's weights and the newest ones
  uint32_t window = 1;           // N: microbatches in flight
  uint32_t optimizer_bytes = 8;  // moments, a parameter
  bool error_feedback = false;   // one number more a parameter
  uint32_t round_bytes = 0;      // of rounds between clusters, a parameter
  bool recompute = true;         // false: every unit keeps its activations of N microbatches
  uint64_t frame_bytes = 0;      // F: one boundary, one microbatch
};

inline uint64_t UnitBytes(const StageMemoryRule& rule, uint64_t parameters, uint64_t activation_bytes) {
  const uint64_t each =
      4 * (uint64_t{rule.lag} + 2) + rule.optimizer_bytes + rule.round_bytes + (rule.error_feedback ? 4 : 0);
  return parameters * each + (rule.recompute ? 0 : rule.window * activation_bytes);
}

// What a stage needs besides its units.
inline uint64_t FixedBytes(const StageMemoryRule& rule, uint64_t largest_activation_bytes) {
  return 2 * uint64_t{rule.window} * rule.frame_bytes + largest_activation_bytes;
}

// True: whatever fits under `assumed` fits under `actual` too.
inline bool Covers(const StageMemoryRule& assumed, const StageMemoryRule& actual) {
  return actual.lag <= assumed.lag && actual.window <= assumed.window;
}

}  // namespace stagecoach
