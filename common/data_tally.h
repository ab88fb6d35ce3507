// What was trained on, in constant size: how many microbatches, and the sum of a mix of their global indices. Two sets
// with equal tallies are equal but for chance (2^-64); an index that is missing, foreign or counted twice shows. The
// order does not matter.
//
// Threading: a value.
#pragma once

#include <cstdint>

namespace stagecoach {

class DataTally {
 public:
  DataTally() = default;
  DataTally(uint64_t microbatches, uint64_t digest) : microbatches_(microbatches), digest_(digest) {}

  void Add(uint64_t global_microbatch) {
    ++microbatches_;
    digest_ += Mix(global_microbatch);
  }
  uint64_t microbatches() const { return microbatches_; }
  uint64_t digest() const { return digest_; }
  bool operator==(const DataTally&) const = default;

 private:
  // Finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit of the index reaches every bit of the sum.
  static constexpr uint64_t Mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  uint64_t microbatches_ = 0, digest_ = 0;
};

}  // namespace stagecoach
