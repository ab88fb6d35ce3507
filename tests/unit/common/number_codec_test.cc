#include "common/codec/number_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "common/counter_rng.h"

namespace stagecoach {
namespace {

constexpr uint64_t kSeed = 20260101;

float Uniform(uint64_t stream, uint64_t index) {
  return static_cast<float>(CounterRng(kSeed, RngPurpose::kTest, stream).Word(index) >> 8) / 16777216.0f;
}

// Values over many orders of magnitude, with zeros among them.
std::vector<float> Values(uint32_t rows, uint32_t columns, uint64_t stream) {
  std::vector<float> values(size_t{rows} * columns);
  for (size_t i = 0; i < values.size(); ++i) {
    const float magnitude = std::exp(40 * Uniform(stream, 3 * (i / 16)) - 30);
    values[i] = Uniform(stream, 3 * i + 1) < 0.05f ? 0 : magnitude * (2 * Uniform(stream, 3 * i + 2) - 1);
  }
  return values;
}

std::vector<uint8_t> Encoded(WireFormat format, uint32_t rows, uint32_t columns, const std::vector<float>& values,
                             const StochasticRounding* rounding = nullptr) {
  std::vector<uint8_t> out(EncodedBytes(format, rows, columns));
  EXPECT_TRUE(Encode(format, rows, columns, values, rounding, absl::MakeSpan(out)));
  return out;
}

std::vector<float> Decoded(WireFormat format, uint32_t rows, uint32_t columns, const std::vector<uint8_t>& encoded) {
  std::vector<float> values(size_t{rows} * columns);
  EXPECT_TRUE(Decode(format, rows, columns, encoded, absl::MakeSpan(values)));
  return values;
}

float ScaleOf(const std::vector<uint8_t>& encoded, size_t elements, size_t group) {
  const uint32_t low = encoded[elements + 2 * group], high = encoded[elements + 2 * group + 1];
  return std::bit_cast<float>((low | high << 8) << 16);
}

TEST(NumberCodecTest, Sizes_AreThoseOfTheFormulas) {
  EXPECT_EQ(EncodedBytes(WireFormat::kFp32, 3, 33), 3u * 33 * 4);
  EXPECT_EQ(EncodedBytes(WireFormat::kBf16, 3, 33), 3u * 33 * 2);
  EXPECT_EQ(EncodedBytes(WireFormat::kInt8, 3, 33), 3u * (33 + 2 * 2));
  EXPECT_EQ(EncodedBytes(WireFormat::kInt8, 2048, 32), 2048u * 34);
}

TEST(NumberCodecTest, Fp32_IsExact) {
  const std::vector<float> values = Values(5, 37, 1);
  EXPECT_EQ(Decoded(WireFormat::kFp32, 5, 37, Encoded(WireFormat::kFp32, 5, 37, values)), values);
}

TEST(NumberCodecTest, Bf16_RoundsToNearestEven) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f, 1e-40f, 0.0f};
  const std::vector<float> decoded = Decoded(WireFormat::kBf16, 1, 7, Encoded(WireFormat::kBf16, 1, 7, values));
  EXPECT_EQ(decoded[0], 1.0f);
  EXPECT_EQ(decoded[1], 1.0f);       // a tie goes to the even neighbour below
  EXPECT_EQ(decoded[2], 1.015625f);  // and here above
  EXPECT_EQ(decoded[3], -1.0f);
  EXPECT_TRUE(std::isfinite(decoded[4]));
  EXPECT_NEAR(decoded[5], 1e-40f, 1e-41f);
}

TEST(NumberCodecTest, Int8_ErrorIsAtMostHalfAStepAndCodesStayWithin127) {
  for (const uint32_t columns : {1u, 31u, 32u, 33u, 64u, 100u}) {
    const uint32_t rows = 40;
    const std::vector<float> values = Values(rows, columns, columns);
    const std::vector<uint8_t> encoded = Encoded(WireFormat::kInt8, rows, columns, values);
    const std::vector<float> decoded = Decoded(WireFormat::kInt8, rows, columns, encoded);
    const size_t groups = (columns + 31) / 32;
    for (size_t i = 0; i < values.size(); ++i) {
      const float scale = ScaleOf(encoded, values.size(), i / columns * groups + i % columns / 32);
      EXPECT_GE(static_cast<int8_t>(encoded[i]), -127);
      // Half a step, plus the rounding of x/scale: 2^-24 of at most 127 steps.
      EXPECT_LE(std::fabs(double{values[i]} - decoded[i]), 0.50001 * scale) << "columns=" << columns << " i=" << i;
    }
  }
}

TEST(NumberCodecTest, Int8Scale_IsTheSmallestBf16AboveAbsmaxOver127) {
  for (uint32_t i = 0; i < 20000; ++i) {
    const float value = std::exp(170 * Uniform(9, i) - 85);
    const std::vector<uint8_t> encoded = Encoded(WireFormat::kInt8, 1, 1, {value});
    const float scale = ScaleOf(encoded, 1, 0);
    EXPECT_GE(double{scale} * 127, double{value});
    const float below = std::bit_cast<float>(std::bit_cast<uint32_t>(scale) - 0x10000u);
    EXPECT_LT(double{below} * 127, double{value});
    EXPECT_LE(static_cast<int8_t>(encoded[0]), 127);
  }
}

TEST(NumberCodecTest, Int8Extremes_StayFinite) {
  const float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
  for (const float value : {largest, -largest, largest / 2, smallest, 1e-38f, -1e-44f}) {
    const std::vector<float> decoded =
        Decoded(WireFormat::kInt8, 1, 2, Encoded(WireFormat::kInt8, 1, 2, {value, 0.0f}));
    EXPECT_TRUE(std::isfinite(decoded[0]));
    EXPECT_NEAR(decoded[0] / largest, value / largest, 0.01);
    EXPECT_EQ(decoded[1], 0.0f);
  }
}

TEST(NumberCodecTest, GroupOfZeros_HasScaleZero) {
  std::vector<float> values(64, 0.0f);
  values[40] = 3;
  const std::vector<uint8_t> encoded = Encoded(WireFormat::kInt8, 1, 64, values);
  EXPECT_EQ(ScaleOf(encoded, 64, 0), 0.0f);
  EXPECT_GT(ScaleOf(encoded, 64, 1), 0.0f);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(encoded[i], 0);
}

TEST(NumberCodecTest, NotFinite_GivesFalseAndZeros) {
  for (const WireFormat format : {WireFormat::kFp32, WireFormat::kBf16, WireFormat::kInt8}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> values(70, 1.0f);
      values[69] = bad;
      std::vector<uint8_t> out(EncodedBytes(format, 2, 35), 1);
      EXPECT_FALSE(Encode(format, 2, 35, values, nullptr, absl::MakeSpan(out)));
      EXPECT_EQ(out, std::vector<uint8_t>(out.size(), 0));
    }
  }
}

TEST(NumberCodecTest, NotFiniteOnTheWire_IsNoticed) {
  std::vector<uint8_t> encoded = Encoded(WireFormat::kInt8, 1, 32, std::vector<float>(32, 1.0f));
  encoded[32] = 0x80;
  encoded[33] = 0x7f;  // the scale is infinite now
  std::vector<float> values(32);
  EXPECT_FALSE(Decode(WireFormat::kInt8, 1, 32, encoded, absl::MakeSpan(values)));
}

TEST(NumberCodecTest, StochasticRounding_MeanOverKeysIsTheValue) {
  constexpr uint32_t kColumns = 32;
  constexpr int kKeys = 10000;
  std::vector<float> values(kColumns);
  for (uint32_t i = 0; i < kColumns; ++i) values[i] = 2e-5f * (Uniform(4, i) - 0.5f);
  values[0] = 1.01e-5f;
  std::vector<double> sum(kColumns), square(kColumns);
  for (int key = 0; key < kKeys; ++key) {
    const StochasticRounding rounding{kSeed, static_cast<uint64_t>(key), 3};
    const std::vector<float> decoded =
        Decoded(WireFormat::kInt8, 1, kColumns, Encoded(WireFormat::kInt8, 1, kColumns, values, &rounding));
    for (uint32_t i = 0; i < kColumns; ++i) {
      sum[i] += decoded[i];
      square[i] += double{decoded[i]} * decoded[i];
    }
  }
  for (uint32_t i = 0; i < kColumns; ++i) {
    const double mean = sum[i] / kKeys;
    const double variance = std::max(0.0, square[i] / kKeys - mean * mean);
    EXPECT_NEAR(mean, values[i], 4 * std::sqrt(variance / kKeys) + 1e-6 * std::fabs(values[i])) << i;
  }
}

TEST(NumberCodecTest, StochasticRounding_IsAFunctionOfItsKey) {
  const std::vector<float> values = Values(7, 45, 6);
  const StochasticRounding rounding{1, 2, 3};
  const std::vector<uint8_t> encoded = Encoded(WireFormat::kInt8, 7, 45, values, &rounding);
  EXPECT_EQ(Encoded(WireFormat::kInt8, 7, 45, values, &rounding), encoded);
  for (const StochasticRounding other :
       {StochasticRounding{2, 2, 3}, StochasticRounding{1, 3, 3}, StochasticRounding{1, 2, 4}}) {
    EXPECT_NE(Encoded(WireFormat::kInt8, 7, 45, values, &other), encoded);
  }
  // Element i uses word i: row 3 alone, at its place, gives the same bytes as within the frame.
  const CounterRng rng(1, RngPurpose::kStochasticRounding, 2 ^ (uint64_t{3} << 48));
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = ScaleOf(encoded, values.size(), i / 45 * 2 + i % 45 / 32);
    if (scale == 0) continue;
    const double r = static_cast<double>(rng.Word(i) >> 8) / 16777216.0;
    EXPECT_EQ(static_cast<int8_t>(encoded[i]), std::floor(double{values[i] / scale} + r)) << i;
  }
}

TEST(NumberCodecTest, EncodedBits_AreTheSameOnEveryMachine) {
  std::vector<float> values(2 * 40);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 64;
  const StochasticRounding rounding{7, 11, 2};
  uint64_t hash = 1469598103934665603u;
  for (const auto& encoded :
       {Encoded(WireFormat::kInt8, 2, 40, values), Encoded(WireFormat::kInt8, 2, 40, values, &rounding),
        Encoded(WireFormat::kBf16, 2, 40, values)}) {
    for (const uint8_t byte : encoded) hash = (hash ^ byte) * 1099511628211u;
  }
  EXPECT_EQ(hash, 7515789926182292714u);
}

}  // namespace
}  // namespace stagecoach
