#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/counter_rng.h"
#include "model/data/token_dataset.h"

namespace stagecoach {
namespace {

constexpr uint32_t kRounds = 6;  // four already pass for random permutations; two more cost nanoseconds

// One pass of a balanced Feistel network over 2 * half_bits bits: a bijection whatever the round function is.
uint64_t Feistel(const CounterRng& rng, uint32_t half_bits, uint64_t value) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (rng.Block(round << 32 | right)[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

uint64_t PermuteWindow(uint64_t seed, uint64_t epoch, uint64_t windows, uint64_t position) {
  if (windows <= 1) return 0;
  const CounterRng rng(seed, RngPurpose::kDataOrder, epoch);
  const auto bits = static_cast<uint32_t>(std::bit_width(windows - 1));
  const uint32_t half_bits = std::max(1u, (bits + 1) / 2);
  // Cycle walking: the domain is less than 4 times larger, so fewer than 4 passes are expected; it ends because the
  // walk from a value below `windows` returns to one.
  uint64_t value = position;
  do {
    value = Feistel(rng, half_bits, value);
  } while (value >= windows);
  return value;
}

absl::StatusOr<WindowSplit> SplitWindows(uint64_t num_tokens, uint64_t sequence_tokens, double validation_fraction) {
  if (sequence_tokens == 0) return absl::InvalidArgumentError("a window needs at least 1 token");
  if (!(validation_fraction >= 0 && validation_fraction <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("validation fraction ", validation_fraction, " is outside 0..1"));
  }
  const uint64_t windows = num_tokens == 0 ? 0 : (num_tokens - 1) / sequence_tokens;
  if (windows < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data hold ", num_tokens, " tokens; a training and an evaluation window of ", sequence_tokens,
        " tokens need at least ", 2 * sequence_tokens + 1, ": use more text or a smaller schedule.sequence_tokens"));
  }
  WindowSplit split;
  const auto wanted = static_cast<uint64_t>(std::llround(static_cast<double>(windows) * validation_fraction));
  split.evaluation = std::clamp<uint64_t>(wanted, 1, windows - 1);
  split.training = windows - split.evaluation;
  return split;
}

}  // namespace stagecoach
