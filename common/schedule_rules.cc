#include "common/schedule_rules.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stagecoach {
namespace {

// floor((n - j) / m), 0 when n < j.
uint64_t DelayedStep(uint64_t n, uint64_t j, uint64_t m) { return n < j ? 0 : (n - j) / m; }

}  // namespace

VersionRule::VersionRule(uint32_t microbatches_per_step, const std::vector<JTableEntry>& table)
    : m_(microbatches_per_step) {
  for (const JTableEntry& entry : table) {
    // Within a segment floor((n - j)/M) never falls, so only the last version of the segment before can hold it up.
    const uint64_t first_n = entry.from_step * m_;
    const uint64_t floor_version = first_n == 0 ? 0 : VersionOf(first_n - 1);
    segments_.push_back({entry.from_step, entry.j, floor_version});
    max_lag_ = std::max(max_lag_, static_cast<uint32_t>((uint64_t{entry.j} + m_ - 1) / m_));
  }
}

uint64_t VersionRule::VersionOf(uint64_t n) const {
  const uint64_t step = n / m_;
  const Segment* segment = &segments_.front();
  for (const Segment& candidate : segments_) {
    if (candidate.from_step > step) break;
    segment = &candidate;
  }
  return std::max(segment->floor_version, DelayedStep(n, segment->j, m_));
}

uint32_t VersionRule::JOf(uint64_t step) const {
  uint64_t j = segments_.front().j;
  for (const Segment& candidate : segments_) {
    if (candidate.from_step <= step) j = candidate.j;
  }
  return static_cast<uint32_t>(j);
}

ItemOrder::ItemOrder(uint32_t microbatches_per_step, uint64_t total_steps, uint64_t evaluation_every,
                     uint32_t evaluation_microbatches)
    : m_(microbatches_per_step),
      total_steps_(total_steps),
      every_(evaluation_every),
      evaluations_(evaluation_microbatches) {}

bool ItemOrder::EvaluationDue(uint64_t steps_done) const {
  if (evaluations_ == 0 || steps_done == 0) return false;
  return steps_done == total_steps_ || (every_ != 0 && steps_done % every_ == 0);
}

uint64_t ItemOrder::FirstSequenceAfter(uint64_t steps_done) const {
  uint64_t evaluations = 0;
  if (evaluations_ != 0 && steps_done != 0) {
    evaluations = every_ == 0 ? 0 : steps_done / every_;
    const bool last_is_extra = every_ == 0 || total_steps_ % every_ != 0;
    // Also behind the end, so that the search of At meets a rising sequence.
    if (steps_done >= total_steps_ && last_is_extra) ++evaluations;
  }
  return steps_done * m_ + evaluations * evaluations_;
}

uint64_t ItemOrder::SequenceOfMicrobatch(uint64_t n) const { return FirstSequenceAfter(n / m_) + n % m_; }

Item ItemOrder::At(uint64_t sequence) const {
  // Largest number of steps s with FirstSequenceAfter(s) <= sequence; at least every M items hold one step.
  uint64_t low = 0, high = sequence / m_ + 1;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (FirstSequenceAfter(middle) <= sequence ? low : high) = middle;
  }
  const uint64_t within = sequence - FirstSequenceAfter(low);
  if (within < m_) return {sequence, low * m_ + within, false, 0};
  return {sequence, (low + 1) * m_, true, static_cast<uint32_t>(within - m_)};
}

uint32_t WindowOf(double loop_seconds_from_stage, double microbatch_seconds, uint32_t stage, uint32_t num_stages) {
  const double littles_law = std::ceil(loop_seconds_from_stage / microbatch_seconds);
  return static_cast<uint32_t>(std::clamp(littles_law, 1.0, 1e6)) + (num_stages - stage + 1) / 2;
}

double SynchronousEfficiency(uint32_t microbatches_per_step, double microbatch_seconds, double loop_seconds,
                             double update_seconds) {
  const double busy = microbatches_per_step * microbatch_seconds;
  return busy / (busy + loop_seconds - microbatch_seconds + update_seconds);
}

uint32_t ChooseJ(uint32_t microbatches_per_step, uint32_t window, double microbatch_seconds, double loop_seconds,
                 double update_seconds) {
  if (SynchronousEfficiency(microbatches_per_step, microbatch_seconds, loop_seconds, update_seconds) >= 0.95) return 0;
  const double updates = std::ceil(update_seconds / microbatch_seconds) - 1;
  return window + static_cast<uint32_t>(std::clamp(updates, 0.0, 1e6));
}

}  // namespace stagecoach
