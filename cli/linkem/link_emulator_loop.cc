// The loop of the emulator: take pieces in, deliver what is due, sleep until the next due time or event.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "cli/linkem/link_emulator.h"

namespace stagecoach {
namespace {

constexpr int kMaxEvents = 256;                      // a round of the loop; the rest comes in the next one
constexpr size_t kScratchBytes = size_t{256} << 10;  // the largest quantum
// A link that has work ahead for milliseconds is refilled once per millisecond, not once per piece.
constexpr LinkTime kTakeInPause = std::chrono::milliseconds(1);
// Waking the emulator twice and the receiver once takes 50-150 us a direction on two cores (seen): deliver earlier by
// that.
constexpr LinkTime kWakeUpCost = std::chrono::microseconds(80);

LinkTime MonotonicNow() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

absl::Status LinkEmulator::Run() {
  prctl(PR_SET_TIMERSLACK, 1);  // the default adds up to 50 us to every delay
  std::array<epoll_event, kMaxEvents> events;
  for (;;) {
    const int count = epoll_wait(epoll_, events.data(), kMaxEvents, -1);
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      void* const source = events[static_cast<size_t>(i)].data.ptr;
      if (source == &stop_event_) return absl::OkStatus();
      if (source == &timer_) {
        uint64_t expirations;
        [[maybe_unused]] const ssize_t ignored = read(timer_, &expirations, sizeof(expirations));
      } else if (source >= listeners_.data() && source < listeners_.data() + listeners_.size()) {
        Accept(*static_cast<Listener*>(source));
      } else {
        Endpoint& endpoint = *static_cast<Endpoint*>(source);
        endpoint.connection->OnEvent(endpoint, events[static_cast<size_t>(i)].events);
      }
    }
    const LinkTime now = MonotonicNow();
    TakeIn(now);
    for (auto& connection : connections_) {
      const LinkTime due = now + kWakeUpCost;
      if (!connection->forward.WriteDue(due) || !connection->backward.WriteDue(due)) connection->Break();
    }
    DropClosed();
    ArmTimer(NextWake(now));
  }
}

void LinkEmulator::Stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(stop_event_, &one, sizeof(one));
}

// One piece of each direction in turn, until every link is busy or nobody has anything.
void LinkEmulator::TakeIn(LinkTime now) {
  for (size_t idle = 0; idle < turns_.size();) {
    idle = TakePiece(*turns_[turn_], now) ? 0 : idle + 1;
    turn_ = (turn_ + 1) % turns_.size();
  }
}

// Of the flow whose turn it is. False: nothing to take, or the way is busy.
bool LinkEmulator::TakePiece(SharedDirection& direction, LinkTime now) {
  static thread_local std::vector<char> scratch(kScratchBytes);
  if (!direction.path.Ready(now)) return false;
  for (size_t idle = 0; idle < direction.flows.size(); ++idle) {
    direction.next = (direction.next + 1) % direction.flows.size();
    Flow& flow = *direction.flows[direction.next];
    if (!flow.WantsToRead(direction.path)) continue;
    if (!flow.ReadPiece(direction.path, now, scratch)) flow.connection()->Break();
    return true;
  }
  return false;
}

void LinkEmulator::DropClosed() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!(*it)->closed()) {
      ++it;
      continue;
    }
    for (auto& [names, direction] : directions_) {
      std::erase(direction->flows, &(*it)->forward);
      std::erase(direction->flows, &(*it)->backward);
    }
    it = connections_.erase(it);
  }
}

// LinkTime::max() = only at an event.
LinkTime LinkEmulator::NextWake(LinkTime now) const {
  LinkTime wake = LinkTime::max();
  for (const auto& [names, direction] : directions_) {
    const bool waiting = std::any_of(direction->flows.begin(), direction->flows.end(),
                                     [&](const Flow* flow) { return flow->WantsToRead(direction->path); });
    if (waiting) wake = std::min(wake, direction->path.ReadyAt() + kTakeInPause);
    for (const Flow* flow : direction->flows) wake = std::min(wake, flow->NextDue() - kWakeUpCost);
  }
  return wake >= LinkTime::max() - kWakeUpCost ? LinkTime::max() : std::max(wake, now);
}

void LinkEmulator::ArmTimer(LinkTime when) {
  itimerspec timer{};
  if (when != LinkTime::max()) {
    timer.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(when).count();
    timer.it_value.tv_nsec = std::max<int64_t>((when % std::chrono::seconds(1)).count(), 1);  // zero would disarm
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &timer, nullptr);
}

std::vector<LinkEmulator::DirectionCount> LinkEmulator::Counts() const {
  std::vector<DirectionCount> counts;
  for (const auto& [names, direction] : directions_) {
    counts.push_back({direction->from, direction->to, direction->clock.bytes(), direction->clock.losses()});
  }
  return counts;
}

}  // namespace stagecoach
