#include "common/averaging/averaging_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "common/codec/number_codec.h"
#include "common/counter_rng.h"

namespace stagecoach {
namespace {

constexpr AveragingCodec kAll[] = {AveragingCodec::kFp32, AveragingCodec::kBf16, AveragingCodec::kInt8,
                                   AveragingCodec::kInt4};

std::vector<float> Values(size_t count, uint64_t stream) {
  const CounterRng rng(20261204, RngPurpose::kTest, stream);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float sign = static_cast<float>(rng.Word(2 * i) >> 8) / 8388608.0f - 1;
    values[i] = sign * std::exp2(static_cast<float>(rng.Word(2 * (i / 64) + 1) % 40) - 30);
  }
  return values;
}

TEST(AveragingCodecTest, Sizes_AreThoseOfTheFormulas) {
  EXPECT_EQ(AveragingBytes(AveragingCodec::kFp32, 129), 516u);
  EXPECT_EQ(AveragingBytes(AveragingCodec::kBf16, 129), 258u);
  EXPECT_EQ(AveragingBytes(AveragingCodec::kInt8, 129), 129u + 6);
  EXPECT_EQ(AveragingBytes(AveragingCodec::kInt4, 129), 65u + 6);
  EXPECT_EQ(AveragingBytes(AveragingCodec::kInt4, 0), 0u);
  EXPECT_DOUBLE_EQ(AveragingBits(AveragingCodec::kInt8), 8.25);
  EXPECT_DOUBLE_EQ(AveragingBits(AveragingCodec::kInt4), 4.25);
}

TEST(AveragingCodecTest, Names_RoundTrip) {
  for (const AveragingCodec codec : kAll) {
    AveragingCodec parsed{};
    EXPECT_TRUE(ParseAveragingCodec(AveragingCodecName(codec), &parsed));
    EXPECT_EQ(parsed, codec);
  }
  AveragingCodec parsed{};
  EXPECT_FALSE(ParseAveragingCodec("int16", &parsed));
}

TEST(AveragingCodecTest, Integers_ErrorIsAtMostHalfAScale) {
  for (const size_t count : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}}) {
    for (const uint32_t bits : {8u, 4u}) {
      const AveragingCodec codec = bits == 8 ? AveragingCodec::kInt8 : AveragingCodec::kInt4;
      const float largest_code = bits == 8 ? 127 : 7;
      const std::vector<float> values = Values(count, count);
      std::vector<uint8_t> encoded(AveragingBytes(codec, count));
      ASSERT_TRUE(EncodeAveraging(codec, values, absl::MakeSpan(encoded)));
      std::vector<float> decoded(count);
      ASSERT_TRUE(DecodeAveraging(codec, encoded, absl::MakeSpan(decoded)));
      for (size_t group = 0; group < count; group += 64) {
        float absmax = 0;
        for (size_t i = group; i < std::min(count, group + 64); ++i) absmax = std::max(absmax, std::fabs(values[i]));
        const double scale = double{absmax} / largest_code * 1.0079;  // rounded up to 8 bits
        for (size_t i = group; i < std::min(count, group + 64); ++i) {
          EXPECT_LE(std::fabs(double{values[i]} - decoded[i]), 0.50001 * scale) << "bits=" << bits << " i=" << i;
        }
      }
    }
  }
}

TEST(AveragingCodecTest, DecodedValues_EncodeToThemselvesUpToTheScale) {
  for (const AveragingCodec codec : {AveragingCodec::kFp32, AveragingCodec::kBf16}) {
    const std::vector<float> values = Values(500, 3);
    std::vector<uint8_t> once(AveragingBytes(codec, 500)), twice(once.size());
    std::vector<float> decoded(500);
    ASSERT_TRUE(EncodeAveraging(codec, values, absl::MakeSpan(once)));
    ASSERT_TRUE(DecodeAveraging(codec, once, absl::MakeSpan(decoded)));
    ASSERT_TRUE(EncodeAveraging(codec, decoded, absl::MakeSpan(twice)));
    EXPECT_EQ(once, twice);
  }
}

TEST(AveragingCodecTest, NotFinite_IsRefused) {
  for (const AveragingCodec codec : kAll) {
    std::vector<float> values = Values(100, 5);
    values[70] = std::numeric_limits<float>::infinity();
    std::vector<uint8_t> encoded(AveragingBytes(codec, 100), 1);
    EXPECT_FALSE(EncodeAveraging(codec, values, absl::MakeSpan(encoded)));
    EXPECT_EQ(encoded, std::vector<uint8_t>(encoded.size(), 0));
  }
}

TEST(AveragingCodecTest, FourBits_OddRowsShareAByte) {
  const std::vector<float> values = {1,  2, 3,
                                     -4, 5, -7};  // two rows of three: element 3 starts in the middle of a byte
  const GroupedIntegers integers{4, 2};
  std::vector<uint8_t> encoded(EncodedBytes(integers, 2, 3), 0xff);
  ASSERT_TRUE(Encode(integers, 2, 3, values, nullptr, absl::MakeSpan(encoded)));
  EXPECT_EQ(encoded.size(), 3u + 2 * 2 * 2);
  std::vector<float> decoded(6);
  ASSERT_TRUE(Decode(integers, 2, 3, encoded, absl::MakeSpan(decoded)));
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(decoded[i], values[i], 0.51) << i;
}

TEST(AveragingCodecTest, EncodedBits_AreTheSameOnEveryMachine) {
  std::vector<float> values(200);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 64;
  uint64_t hash = 1469598103934665603u;
  for (const AveragingCodec codec : kAll) {
    std::vector<uint8_t> encoded(AveragingBytes(codec, 200));
    ASSERT_TRUE(EncodeAveraging(codec, values, absl::MakeSpan(encoded)));
    for (const uint8_t byte : encoded) hash = (hash ^ byte) * 1099511628211u;
  }
  EXPECT_EQ(hash, 3967157728899903000u);
}

}  // namespace
}  // namespace stagecoach
