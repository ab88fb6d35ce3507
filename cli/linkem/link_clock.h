// Decides when bytes leave one direction of an emulated link: one serialisation clock shared by every connection of the
// pair, then the one-way delay, jitter, and pauses as a lost packet causes. A link is a FIFO: due times never go back.
//
//   link_free = max(now, link_free) + bytes / rate;   due = max(due, link_free + delay + jitter)
//
// Threading: none; the caller serialises. No clock of its own: time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/counter_rng.h"

namespace stagecoach {

using LinkTime = std::chrono::nanoseconds;  // since an arbitrary start

struct LinkShape {
  double bytes_per_second = 0;  // 0 = as fast as it goes
  LinkTime delay{0};            // one way
  LinkTime jitter{0};           // uniform in [-jitter, +jitter], never below zero delay
  double loss = 0;              // probability that a packet of 1460 bytes is lost, [0, 1)
};

class LinkClock {
 public:
  // `stream` tells apart the directions of one emulator: equal seeds and streams give equal jitter and losses.
  LinkClock(const LinkShape& shape, uint64_t seed, uint64_t stream);

  // May another piece be taken in? The link works at most a few milliseconds ahead, so that what waits longer waits in
  // the sender's socket (back-pressure) and connections take turns.
  bool Ready(LinkTime now) const;
  // When Ready becomes true.
  LinkTime ReadyAt() const;
  // Takes `bytes` in and returns when their last byte has arrived at the other end.
  LinkTime Admit(LinkTime now, size_t bytes) { return Admit(now, now, bytes); }
  // The same if they leave at `leaves` at the earliest, because of another queue.
  LinkTime Admit(LinkTime now, LinkTime leaves, size_t bytes);

  // Largest piece to take in at once: about 1 ms of the rate, so that pieces of several connections interleave finely.
  size_t quantum() const { return quantum_; }
  // Bytes that one connection may have under way in this direction: two bandwidth-delay products of a round trip.
  size_t max_in_flight() const { return max_in_flight_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t losses() const { return losses_; }

 private:
  double NextUniform();  // [0, 1)

  const LinkShape shape_;
  const CounterRng rng_;
  const size_t quantum_;
  const size_t max_in_flight_;
  LinkTime link_free_{0};
  LinkTime last_due_{0};
  uint64_t draws_ = 0;
  uint64_t bytes_ = 0;
  uint64_t losses_ = 0;
};

}  // namespace stagecoach
