// Runs posted functions one after the other on one thread (or in virtual time).
//
// Threading: Post and PostAfter from any thread; functions run on the loop. Never block in one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace stagecoach {

using MonoTime = std::chrono::nanoseconds;  // since an arbitrary start
using Duration = std::chrono::nanoseconds;

class EventLoop {
 public:
  virtual ~EventLoop() = default;
  virtual void Post(std::function<void()> function) = 0;
  virtual void PostAfter(Duration delay, std::function<void()> function) = 0;
  virtual MonoTime Now() const = 0;
  virtual bool InLoop() const = 0;
};

// One thread. Functions posted after Stop are dropped. Stop joins; functions already queued are run first.
class ThreadEventLoop final : public EventLoop {
 public:
  explicit ThreadEventLoop(std::string name);
  ~ThreadEventLoop() override;
  void Post(std::function<void()> function) override;
  void PostAfter(Duration delay, std::function<void()> function) override;
  MonoTime Now() const override;
  bool InLoop() const override;
  void Stop();

 private:
  void Run();
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> ready_;
  std::multimap<MonoTime, std::function<void()>> timers_;  // equal times run in order of insertion
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace stagecoach
