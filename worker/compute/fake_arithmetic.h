// The arithmetic of the fake stage: a unit's weights, gradient sum and moment are one 64-bit number each, and every
// operation is an order-sensitive mix of what a real one would read. Shared by FakeStageExecutor and its reference.
//
// Threading: pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "common/schedule_rules.h"

namespace stagecoach::fake {

// Not commutative and not associative: Mix(a, b) != Mix(b, a), and a sum of terms depends on their order.
constexpr uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + std::rotl(b, 29) + 0xD1B54A32D192ED03u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// In [0, 1).
constexpr double Fraction(uint64_t x) { return static_cast<double>(x >> 11) * 0x1p-53; }

constexpr uint64_t InitialWeights(uint64_t seed, uint32_t unit) { return Mix(Mix(seed, 0x57), unit); }

// What the embedding would read for this item.
constexpr uint64_t Tokens(uint64_t seed, const Item& item) {
  return item.is_evaluation ? Mix(Mix(seed, 0xE7), item.evaluation) : Mix(Mix(seed, 0x70), item.n);
}

// Activation behind a unit.
constexpr uint64_t UnitForward(uint64_t activation, uint64_t weights) { return Mix(activation, weights); }
// What the unit adds to its gradient sum, and the gradient in front of it.
constexpr uint64_t UnitGradient(uint64_t activation, uint64_t weights, uint64_t gradient) {
  return Mix(Mix(gradient, weights), activation);
}
constexpr uint64_t Accumulate(uint64_t sum, uint64_t gradient) { return Mix(sum, gradient); }
constexpr uint64_t UnitBackward(uint64_t activation, uint64_t weights, uint64_t gradient) {
  return Mix(Mix(activation, weights), gradient);
}
// Gradient behind the last unit.
constexpr uint64_t LossGradient(uint64_t activation, const Item& item) { return Mix(activation, Mix(item.n, 0x1A)); }
constexpr double Loss(uint64_t activation) { return 1 + 4 * Fraction(activation); }
constexpr double SquareNorm(uint64_t sum) { return Fraction(sum); }

constexpr uint64_t Moment(uint64_t moment, uint64_t sum, double clip) {
  return Mix(moment, Mix(sum, std::bit_cast<uint64_t>(clip)));
}
constexpr uint64_t UpdatedWeights(uint64_t weights, uint64_t moment, uint64_t step) {
  return Mix(weights, Mix(moment, step));
}

// What clusters average of a number: its four 16-bit parts, low ones first, each an integer that fp32 holds exactly.
constexpr uint32_t kAveragedParts = 4;
constexpr float AveragedPart(uint64_t number, uint32_t part) {
  return static_cast<float>((number >> (16 * part)) & 0xFFFF);
}
// An average that is no such integer is rounded towards 0 and kept within 16 bits.
constexpr uint64_t NumberOfPart(float value, uint32_t part) {
  const float kept = value >= 0 ? (value <= 65535 ? value : 65535) : 0;
  return static_cast<uint64_t>(kept) << (16 * part);
}

}  // namespace stagecoach::fake
