// An event loop in virtual time: the test says how far the time goes.
//
// Threading: one thread.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "common/event_loop.h"

namespace stagecoach::testing {

class ManualLoop final : public EventLoop {
 public:
  void Post(std::function<void()> function) override { PostAfter(Duration::zero(), std::move(function)); }
  void PostAfter(Duration delay, std::function<void()> function) override {
    timers_.emplace(now_ + delay, std::move(function));
  }
  MonoTime Now() const override { return now_; }
  bool InLoop() const override { return true; }

  // Runs everything that is due in the next `duration`.
  void Advance(Duration duration) {
    const MonoTime end = now_ + duration;
    while (!timers_.empty() && timers_.begin()->first <= end) {
      now_ = timers_.begin()->first;
      const std::function<void()> function = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      function();
    }
    now_ = end;
  }

 private:
  MonoTime now_{std::chrono::hours(1)};  // not 0, so that an unset time shows
  std::multimap<MonoTime, std::function<void()>> timers_;
};

}  // namespace stagecoach::testing
