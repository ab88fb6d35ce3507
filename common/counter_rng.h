// Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011). A number is a function of (seed, purpose, index);
// there is no generator state, so replay, recompute and any thread count give the same bits on every machine.
//
// Threading: pure functions and values.
#pragma once

#include <array>
#include <cstdint>

namespace stagecoach {

// What a stream of numbers is for. Values are part of the arithmetic: never renumber.
enum class RngPurpose : uint32_t {
  kInit = 1,
  kDropout = 2,
  kStochasticRounding = 3,
  kAnchor = 4,
  kBasis = 5,
  kDataOrder = 6,
  kTest = 7,
  kJitter = 8,
  kSample = 9,
  kPlanSearch = 10,
  kPlanBaseline = 11,
};

// Ten rounds of Philox4x32 on `counter` under `key`.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The numbers of one (seed, purpose, stream): block i holds four 32-bit words. `stream` tells apart users of one
// purpose: a microbatch index, a layer, a site.
class CounterRng {
 public:
  constexpr CounterRng(uint64_t seed, RngPurpose purpose, uint64_t stream = 0)
      : key_(MixKey(seed, static_cast<uint32_t>(purpose))), stream_(stream) {}

  // Four uniform 32-bit words of block `index` (index < 2^64).
  constexpr std::array<uint32_t, 4> Block(uint64_t index) const {
    return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream_),
                       static_cast<uint32_t>(stream_ >> 32)},
                      key_);
  }
  // Word number `index` of the stream.
  constexpr uint32_t Word(uint64_t index) const { return Block(index / 4)[index % 4]; }

 private:
  // 64-bit seed and purpose into a 64-bit key through one Philox call, so that neighbouring seeds share nothing.
  static constexpr std::array<uint32_t, 2> MixKey(uint64_t seed, uint32_t purpose) {
    const auto mixed =
        Philox4x32({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), purpose, 0x53544147u},
                   {0x434f4143u, 0x48525553u});
    return {mixed[0], mixed[1]};
  }
  std::array<uint32_t, 2> key_;
  uint64_t stream_;
};

}  // namespace stagecoach
