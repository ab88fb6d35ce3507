// Draws one after the other from a counter-based stream: numbers below a limit, uniform reals, shuffles. The position
// in the stream is all of its state, so equal (seed, purpose, stream) give equal draws on every machine (LogBetween: up
// to the last bits of the machine's pow).
//
// Threading: a value; one user at a time.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/counter_rng.h"

namespace stagecoach {

class RngDraws {
 public:
  RngDraws(uint64_t seed, RngPurpose purpose, uint64_t stream = 0) : rng_(seed, purpose, stream) {}

  uint32_t Word() {
    if (position_ % 4 == 0) block_ = rng_.Block(position_ / 4);
    return block_[position_++ % 4];
  }
  // 0 .. limit - 1; limit > 0. Biased by less than limit / 2^32.
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(uint64_t{Word()} * limit >> 32); }
  // In [0, 1), 32 bits.
  double Unit() { return Word() * 0x1p-32; }
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  // Every ratio is as likely: for speeds and rates. 0 < low <= high.
  double LogBetween(double low, double high) { return low * std::pow(high / low, Unit()); }
  template <typename T>
  void Shuffle(std::vector<T>* items) {
    for (auto left = static_cast<uint32_t>(items->size()); left > 1; --left) {
      std::swap((*items)[left - 1], (*items)[Below(left)]);
    }
  }

 private:
  CounterRng rng_;
  uint64_t position_ = 0;
  std::array<uint32_t, 4> block_ = {};
};

}  // namespace stagecoach
