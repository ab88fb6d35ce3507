// How rows of numbers are put on the wire: fp32, bf16, integers of 8 or 4 bits in groups. Plain functions on spans, no
// protobuf, so that the oracle uses the very same ones.
//
// A frame is `rows` x `columns` fp32, row-major. Integers: groups of consecutive columns of ONE row (a short last
// group), 32 of 8 bits in the frames of a pipeline; layout = all q of the frame row-major (8 bits: a byte each; 4 bits:
// element i in the low half of byte i/2 if i is even, else in the high half), then all scales (bf16 little endian)
// row-major; scale = absmax/127 (absmax/7) rounded UP to bf16, q = x/scale, value = q*scale. A group of zeros has scale
// 0.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

enum class WireFormat : uint8_t { kFp32 = 1, kBf16 = 2, kInt8 = 3 };  // numbers of run.proto

constexpr uint32_t kInt8Group = 32;

// Integers with one scale for each group of columns.
struct GroupedIntegers {
  uint32_t bits = 8;  // 8 or 4
  uint32_t group = kInt8Group;
};
constexpr uint32_t kLargestGroup = 64;

// Payload bytes of one frame. fp32 4k, bf16 2k, int8 k + 2*ceil(k/32) a row.
size_t EncodedBytes(WireFormat format, uint32_t rows, uint32_t columns);
size_t EncodedBytes(GroupedIntegers integers, uint32_t rows, uint32_t columns);

// What stochastic rounding is a function of. Used for gradients only: q = floor(x/scale + r), r = 24 bits of the
// counter RNG; activations are rounded to nearest even.
struct StochasticRounding {
  uint64_t seed = 0;
  uint64_t n = 0;    // microbatch
  uint32_t cut = 0;  // unit number behind the boundary: moving workers does not change the bits
};

// Encodes values (rows*columns) into out (EncodedBytes). Returns false if a value is not finite; then out is all zero
// and the frame must carry the nonfinite flag. `rounding` null: nearest even. fp32 and bf16 ignore `rounding`.
bool Encode(WireFormat format, uint32_t rows, uint32_t columns, absl::Span<const float> values,
            const StochasticRounding* rounding, absl::Span<uint8_t> out);
bool Encode(GroupedIntegers integers, uint32_t rows, uint32_t columns, absl::Span<const float> values,
            const StochasticRounding* rounding, absl::Span<uint8_t> out);

// Inverse. Preconditions: sizes match. Returns false if a decoded value is not finite (a scale that is inf or nan).
bool Decode(WireFormat format, uint32_t rows, uint32_t columns, absl::Span<const uint8_t> encoded,
            absl::Span<float> values);
bool Decode(GroupedIntegers integers, uint32_t rows, uint32_t columns, absl::Span<const uint8_t> encoded,
            absl::Span<float> values);

}  // namespace stagecoach
