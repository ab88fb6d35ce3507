#include "common/event_loop.h"

#include <pthread.h>

#include <utility>

namespace stagecoach {

ThreadEventLoop::ThreadEventLoop(std::string name) : name_(std::move(name)), thread_([this] { Run(); }) {
  // Shown by ps and debuggers; the kernel keeps 15 characters.
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

ThreadEventLoop::~ThreadEventLoop() { Stop(); }

void ThreadEventLoop::Post(std::function<void()> function) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    ready_.push_back(std::move(function));
  }
  wake_.notify_one();
}

void ThreadEventLoop::PostAfter(Duration delay, std::function<void()> function) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    timers_.emplace(Now() + delay, std::move(function));
  }
  wake_.notify_one();
}

MonoTime ThreadEventLoop::Now() const {
  return std::chrono::duration_cast<MonoTime>(std::chrono::steady_clock::now().time_since_epoch());
}

bool ThreadEventLoop::InLoop() const { return std::this_thread::get_id() == thread_.get_id(); }

void ThreadEventLoop::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ThreadEventLoop::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    while (!timers_.empty() && timers_.begin()->first <= Now()) {
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (!ready_.empty()) {
      std::function<void()> function = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      function();
      function = nullptr;  // what it captured dies here, outside the lock
      lock.lock();
    } else if (stopping_) {
      return;
    } else if (timers_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, timers_.begin()->first - Now());
    }
  }
}

}  // namespace stagecoach
