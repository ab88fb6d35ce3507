#include "coordinator/domain/speed_watch.h"

#include <cmath>

namespace stagecoach {
namespace {

constexpr double kSlowFactor = 1.5, kGoodFactor = 1.2;
constexpr uint64_t kSlowMicrobatches = 20;

}  // namespace

bool SpeedWatch::OnTotals(uint64_t microbatches, double training_seconds) {
  const double spent = training_seconds - training_seconds_;
  if (microbatches <= microbatches_ || !std::isfinite(spent) || spent < 0) return false;
  const uint64_t count = microbatches - microbatches_;
  seconds_.Add(spent / static_cast<double>(count), count);
  microbatches_ = microbatches;
  training_seconds_ = training_seconds;

  microbatches_above_ = seconds_.value() > kSlowFactor * planned_seconds_ ? microbatches_above_ + count : 0;
  const bool was_slow = slow_;
  if (microbatches_above_ >= kSlowMicrobatches) slow_ = true;
  if (seconds_.value() < kGoodFactor * planned_seconds_) slow_ = false;
  return slow_ != was_slow;
}

}  // namespace stagecoach
