#include "cli/linkem/link_clock.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

constexpr size_t kPacketBytes = 1460;                      // TCP payload of an Ethernet frame: the unit that is lost
constexpr size_t kMinInFlight = size_t{256} << 10;         // a round trip at 10 Mbit/s is less: never starve a reader
constexpr size_t kMaxQuantum = size_t{256} << 10;          // one read call; about 2 ms at 1 Gbit/s
constexpr LinkTime kAhead = std::chrono::milliseconds(4);  // covers late wake-ups on a machine that computes
constexpr LinkTime kMinTimeout = std::chrono::milliseconds(200);  // Linux TCP_RTO_MIN

size_t QuantumOf(double bytes_per_second) {
  if (bytes_per_second <= 0) return kMaxQuantum;
  return std::clamp(static_cast<size_t>(bytes_per_second * 1e-3), kPacketBytes, kMaxQuantum);
}

size_t InFlightOf(const LinkShape& shape) {
  // Without a rate any delay must be filled at memory speed: 1 GB/s.
  const double rate = shape.bytes_per_second > 0 ? shape.bytes_per_second : 1e9;
  const double round_trip = 2 * std::chrono::duration<double>(shape.delay + shape.jitter).count();
  return std::max(kMinInFlight, static_cast<size_t>(2 * rate * round_trip) + 2 * QuantumOf(shape.bytes_per_second));
}

}  // namespace

LinkClock::LinkClock(const LinkShape& shape, uint64_t seed, uint64_t stream)
    : shape_(shape),
      rng_(seed, RngPurpose::kJitter, stream),
      quantum_(QuantumOf(shape.bytes_per_second)),
      max_in_flight_(InFlightOf(shape)) {}

bool LinkClock::Ready(LinkTime now) const { return now >= ReadyAt(); }

LinkTime LinkClock::ReadyAt() const { return link_free_ - kAhead; }

LinkTime LinkClock::Admit(LinkTime now, LinkTime leaves, size_t bytes) {
  link_free_ = std::max(now, link_free_);
  if (shape_.bytes_per_second > 0) {
    link_free_ += LinkTime(static_cast<int64_t>(static_cast<double>(bytes) / shape_.bytes_per_second * 1e9));
  }
  if (shape_.loss > 0 && bytes > 0) {
    const double packets = std::ceil(static_cast<double>(bytes) / kPacketBytes);
    if (NextUniform() < 1 - std::pow(1 - shape_.loss, packets)) {
      // TCP repeats the packet after its retransmission timeout; everything behind it waits.
      link_free_ += std::max(kMinTimeout, 2 * shape_.delay);
      ++losses_;
    }
  }
  LinkTime arrival = std::max(link_free_, leaves) + shape_.delay;
  if (shape_.jitter.count() > 0) {
    const double offset = (2 * NextUniform() - 1) * static_cast<double>(shape_.jitter.count());
    arrival += std::max(LinkTime(static_cast<int64_t>(offset)), -shape_.delay);
  }
  last_due_ = std::max(last_due_, arrival);
  bytes_ += bytes;
  return last_due_;
}

double LinkClock::NextUniform() { return rng_.Word(draws_++) * 0x1p-32; }

}  // namespace stagecoach
