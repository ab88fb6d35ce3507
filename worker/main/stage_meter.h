// Where the time of a stage goes: computing, or idle and waiting for what; and how stale the weights it used were.
//
// Threading: a value, confined to the worker loop; the time is an argument.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "common/event_loop.h"
#include "protos/coordinator.pb.h"
#include "worker/domain/stage_core.h"

namespace stagecoach {

class StageMeter {
 public:
  // The compute lane is in this state from `now` on: computing, or idle for a reason. kNone: neither (done, not
  // started).
  void Computing(MonoTime now) { Enter(now, true, WaitReason::kNone); }
  void Idle(MonoTime now, WaitReason reason) { Enter(now, false, reason); }

  void AddBusy(double seconds) { busy_seconds_ += seconds; }
  // Forward, backward or update of training; `completes` a microbatch or not.
  void AddTraining(double seconds, bool completes) {
    training_seconds_ += seconds;
    microbatches_ += completes ? 1 : 0;
  }
  void AddLag(uint64_t lag) { ++staleness_[lag]; }

  // Totals so far; the state that is under way counts up to `now`.
  void Fill(MonoTime now, WorkerCounters* counters) const;

 private:
  void Enter(MonoTime now, bool computing, WaitReason reason);

  static constexpr size_t kReasons = 8;  // of WaitReason
  std::array<double, kReasons> waiting_seconds_{};
  double busy_seconds_ = 0, training_seconds_ = 0;
  uint64_t microbatches_ = 0;
  std::map<uint64_t, uint64_t> staleness_;
  bool computing_ = false;
  WaitReason reason_ = WaitReason::kNone;
  MonoTime since_{0};
};

}  // namespace stagecoach
