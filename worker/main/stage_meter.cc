#include "worker/main/stage_meter.h"

namespace stagecoach {
namespace {

const char* NameOf(WaitReason reason) {
  switch (reason) {
    case WaitReason::kNone:
      return "none";
    case WaitReason::kInput:
      return "input";
    case WaitReason::kGradient:
      return "gradient";
    case WaitReason::kCredit:
      return "credit";
    case WaitReason::kVersion:
      return "version";
    case WaitReason::kScalar:
      return "scalar";
    case WaitReason::kSend:
      return "send";
    case WaitReason::kRound:
      return "round";
  }
  return "none";
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void StageMeter::Enter(MonoTime now, bool computing, WaitReason reason) {
  if (!computing_) waiting_seconds_[static_cast<size_t>(reason_)] += Seconds(now - since_);
  computing_ = computing;
  reason_ = reason;
  since_ = now;
}

void StageMeter::Fill(MonoTime now, WorkerCounters* counters) const {
  for (size_t i = 1; i < kReasons; ++i) {
    double seconds = waiting_seconds_[i];
    if (!computing_ && static_cast<size_t>(reason_) == i) seconds += Seconds(now - since_);
    if (seconds > 0) (*counters->mutable_waiting_seconds())[NameOf(static_cast<WaitReason>(i))] = seconds;
  }
  counters->set_busy_seconds(busy_seconds_);
  counters->set_microbatches(microbatches_);
  counters->set_training_seconds(training_seconds_);
  for (const auto& [lag, microbatches] : staleness_) {
    (*counters->mutable_staleness())[static_cast<uint32_t>(lag)] = microbatches;
  }
}

}  // namespace stagecoach
