#include "common/codec/number_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/counter_rng.h"

namespace stagecoach {
namespace {

constexpr uint32_t kMagnitudeMask = 0x7fffffffu;
constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint16_t kLargestBf16 = 0x7f7f;
// Adding and subtracting 1.5 * 2^23 rounds a float below 2^22 to the nearest integer, ties to even, with two additions
// that every vector unit has. Exact as long as nothing is contracted or reassociated (see cmake/Stagecoach.cmake).
constexpr float kRoundingShift = 12582912.0f;

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
float Bf16ToFloat(uint16_t bits) { return FloatOf(uint32_t{bits} << 16); }

// Magnitudes of floats are ordered like their bits; infinities and NaNs are at the top.
uint32_t LargestMagnitudeBits(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, BitsOf(values[i]) & kMagnitudeMask);
  return largest;
}

bool AllFinite(const float* values, size_t count) { return LargestMagnitudeBits(values, count) < kInfinityBits; }

// Nearest, ties to even. Finite values beyond the largest bf16 stay finite.
uint16_t FloatToBf16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint16_t magnitude = std::min<uint16_t>(static_cast<uint16_t>(rounded & 0x7fffu), kLargestBf16);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | magnitude);
}

// 127 or 7: symmetric, so that -x has the code of x.
float LargestCode(uint32_t bits) { return static_cast<float>((1u << (bits - 1)) - 1); }

// The smallest bf16 that is at least absmax/largest_code. code * scale is exact in fp32 (7 + 8 bits), so the comparison
// is too.
uint16_t ScaleFor(float absmax, float largest_code) {
  uint16_t scale = static_cast<uint16_t>(BitsOf(absmax / largest_code) >> 16);
  while (Bf16ToFloat(scale) * largest_code < absmax) ++scale;
  // Within 1 % of the largest float the largest code would not be finite: rather clip that value by less than 1 %.
  if ((BitsOf(Bf16ToFloat(scale) * largest_code) & kMagnitudeMask) >= kInfinityBits) --scale;
  return scale;
}

float ClampCode(float code, float largest) { return std::min(std::max(code, -largest), largest); }

void QuantizeNearest(const float* values, size_t count, float scale, float largest, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const float code = (values[i] / scale + kRoundingShift) - kRoundingShift;
    out[i] = static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(ClampCode(code, largest))));
  }
}

// floor(x/scale + r) without rounding of the sum: r is compared with what x/scale lacks to the next integer, so that
// integers stay what they are and the mean is exact to 2^-24.
void QuantizeStochastic(const float* values, size_t count, float scale, float largest, const float* r, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const float exact = values[i] / scale;
    const float nearest = (exact + kRoundingShift) - kRoundingShift;
    const float floor = nearest - (nearest > exact ? 1.0f : 0.0f);
    const float code = floor + ((exact - floor) + r[i] >= 1.0f ? 1.0f : 0.0f);
    out[i] = static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(ClampCode(code, largest))));
  }
}

// Numbers in [0, 1) of the elements first .. first + count - 1: the upper 24 bits of the words of these indices.
void FillUniform(const CounterRng& rng, uint64_t first, size_t count, float* r) {
  size_t i = 0;
  while (i < count) {
    const uint64_t element = first + i;
    const std::array<uint32_t, 4> block = rng.Block(element / 4);
    for (size_t word = element % 4; word < 4 && i < count; ++word, ++i) {
      r[i] = static_cast<float>(block[word] >> 8) * (1.0f / 16777216.0f);
    }
  }
}

// Bytes of all codes, which stand before the scales.
size_t CodeBytes(GroupedIntegers integers, size_t elements) {
  return integers.bits == 8 ? elements : (elements + 1) / 2;
}

// The codes of elements first .. first + count - 1 at their places. `out` was zero there.
void PackNibbles(const uint8_t* codes, size_t first, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const size_t element = first + i;
    out[element / 2] |= static_cast<uint8_t>((codes[i] & 0xfu) << (element % 2 == 0 ? 0 : 4));
  }
}

// Two's complement of 4 bits.
int8_t NibbleAt(const uint8_t* codes, size_t element) {
  const uint8_t shifted =
      static_cast<uint8_t>(element % 2 == 0 ? unsigned{codes[element / 2]} << 4 : codes[element / 2] & 0xf0u);
  return static_cast<int8_t>(static_cast<int8_t>(shifted) / 16);
}

bool EncodeIntegers(GroupedIntegers integers, uint32_t rows, uint32_t columns, const float* values,
                    const StochasticRounding* rounding, uint8_t* out) {
  const size_t elements = size_t{rows} * columns;
  const float largest_code = LargestCode(integers.bits);
  uint8_t* scale_out = out + CodeBytes(integers, elements);
  if (integers.bits != 8) std::memset(out, 0, CodeBytes(integers, elements));
  // n fills the lower 48 bits and the cut the upper 16: no two frames of a run share a stream.
  const CounterRng rng(rounding ? rounding->seed : 0, RngPurpose::kStochasticRounding,
                       rounding ? rounding->n ^ (uint64_t{rounding->cut} << 48) : 0);
  std::array<float, kLargestGroup> r{};
  std::array<uint8_t, kLargestGroup> codes{};
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; column += integers.group) {
      const size_t first = row * columns + column;
      const size_t count = std::min<size_t>(integers.group, columns - column);
      uint8_t* const code_out = integers.bits == 8 ? out + first : codes.data();
      const uint32_t largest = LargestMagnitudeBits(values + first, count);
      if (largest >= kInfinityBits) return false;
      const uint16_t scale_bits = largest == 0 ? 0 : ScaleFor(FloatOf(largest), largest_code);
      *scale_out++ = static_cast<uint8_t>(scale_bits);
      *scale_out++ = static_cast<uint8_t>(scale_bits >> 8);
      if (scale_bits == 0) {
        std::memset(code_out, 0, count);
      } else if (rounding == nullptr) {
        QuantizeNearest(values + first, count, Bf16ToFloat(scale_bits), largest_code, code_out);
      } else {
        FillUniform(rng, first, count, r.data());
        QuantizeStochastic(values + first, count, Bf16ToFloat(scale_bits), largest_code, r.data(), code_out);
      }
      if (integers.bits != 8) PackNibbles(codes.data(), first, count, out);
    }
  }
  return true;
}

void DecodeIntegers(GroupedIntegers integers, uint32_t rows, uint32_t columns, const uint8_t* encoded, float* values) {
  const uint8_t* scale_in = encoded + CodeBytes(integers, size_t{rows} * columns);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; column += integers.group) {
      const size_t first = row * columns + column;
      const size_t count = std::min<size_t>(integers.group, columns - column);
      const float scale = Bf16ToFloat(static_cast<uint16_t>(scale_in[0] | (scale_in[1] << 8)));
      scale_in += 2;
      if (integers.bits == 8) {
        for (size_t i = 0; i < count; ++i) {
          values[first + i] = static_cast<float>(static_cast<int8_t>(encoded[first + i])) * scale;
        }
      } else {
        for (size_t i = 0; i < count; ++i) {
          values[first + i] = static_cast<float>(NibbleAt(encoded, first + i)) * scale;
        }
      }
    }
  }
}

bool EncodeBf16(size_t elements, const float* values, uint8_t* out) {
  if (!AllFinite(values, elements)) return false;
  for (size_t i = 0; i < elements; ++i) {
    const uint16_t bits = FloatToBf16(values[i]);
    out[2 * i] = static_cast<uint8_t>(bits);
    out[2 * i + 1] = static_cast<uint8_t>(bits >> 8);
  }
  return true;
}

void DecodeBf16(size_t elements, const uint8_t* encoded, float* values) {
  for (size_t i = 0; i < elements; ++i) {
    values[i] = Bf16ToFloat(static_cast<uint16_t>(encoded[2 * i] | (encoded[2 * i + 1] << 8)));
  }
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "fp32 frames are little endian and copied as they are");

size_t EncodedBytes(WireFormat format, uint32_t rows, uint32_t columns) {
  const size_t elements = size_t{rows} * columns;
  switch (format) {
    case WireFormat::kFp32:
      return elements * 4;
    case WireFormat::kBf16:
      return elements * 2;
    case WireFormat::kInt8:
      return EncodedBytes(GroupedIntegers{}, rows, columns);
  }
  return 0;
}

size_t EncodedBytes(GroupedIntegers integers, uint32_t rows, uint32_t columns) {
  return CodeBytes(integers, size_t{rows} * columns) +
         2 * size_t{rows} * ((size_t{columns} + integers.group - 1) / integers.group);
}

bool Encode(WireFormat format, uint32_t rows, uint32_t columns, absl::Span<const float> values,
            const StochasticRounding* rounding, absl::Span<uint8_t> out) {
  const size_t elements = size_t{rows} * columns;
  bool finite = false;
  switch (format) {
    case WireFormat::kFp32:
      finite = AllFinite(values.data(), elements);
      if (finite && elements > 0) std::memcpy(out.data(), values.data(), elements * 4);
      break;
    case WireFormat::kBf16:
      finite = EncodeBf16(elements, values.data(), out.data());
      break;
    case WireFormat::kInt8:
      return Encode(GroupedIntegers{}, rows, columns, values, rounding, out);
  }
  if (!finite) std::fill(out.begin(), out.end(), uint8_t{0});
  return finite;
}

bool Encode(GroupedIntegers integers, uint32_t rows, uint32_t columns, absl::Span<const float> values,
            const StochasticRounding* rounding, absl::Span<uint8_t> out) {
  const bool finite = EncodeIntegers(integers, rows, columns, values.data(), rounding, out.data());
  if (!finite) std::fill(out.begin(), out.end(), uint8_t{0});
  return finite;
}

bool Decode(WireFormat format, uint32_t rows, uint32_t columns, absl::Span<const uint8_t> encoded,
            absl::Span<float> values) {
  const size_t elements = size_t{rows} * columns;
  switch (format) {
    case WireFormat::kFp32:
      if (elements > 0) std::memcpy(values.data(), encoded.data(), elements * 4);
      break;
    case WireFormat::kBf16:
      DecodeBf16(elements, encoded.data(), values.data());
      break;
    case WireFormat::kInt8:
      return Decode(GroupedIntegers{}, rows, columns, encoded, values);
  }
  return AllFinite(values.data(), elements);
}

bool Decode(GroupedIntegers integers, uint32_t rows, uint32_t columns, absl::Span<const uint8_t> encoded,
            absl::Span<float> values) {
  DecodeIntegers(integers, rows, columns, encoded.data(), values.data());
  return AllFinite(values.data(), size_t{rows} * columns);
}

}  // namespace stagecoach
