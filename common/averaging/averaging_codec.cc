#include "common/averaging/averaging_codec.h"

#include "common/codec/number_codec.h"

namespace stagecoach {
namespace {

constexpr GroupedIntegers kEightBits{8, kAveragingGroup};
constexpr GroupedIntegers kFourBits{4, kAveragingGroup};

}  // namespace

const char* AveragingCodecName(AveragingCodec codec) {
  switch (codec) {
    case AveragingCodec::kFp32:
      return "fp32";
    case AveragingCodec::kBf16:
      return "bf16";
    case AveragingCodec::kInt8:
      return "int8";
    case AveragingCodec::kInt4:
      return "int4";
  }
  return "unknown";
}

bool ParseAveragingCodec(absl::string_view name, AveragingCodec* codec) {
  for (const AveragingCodec candidate :
       {AveragingCodec::kFp32, AveragingCodec::kBf16, AveragingCodec::kInt8, AveragingCodec::kInt4}) {
    if (name != AveragingCodecName(candidate)) continue;
    *codec = candidate;
    return true;
  }
  return false;
}

size_t AveragingBytes(AveragingCodec codec, size_t elements) {
  switch (codec) {
    case AveragingCodec::kFp32:
      return elements * 4;
    case AveragingCodec::kBf16:
      return elements * 2;
    case AveragingCodec::kInt8:
      return EncodedBytes(kEightBits, 1, static_cast<uint32_t>(elements));
    case AveragingCodec::kInt4:
      return EncodedBytes(kFourBits, 1, static_cast<uint32_t>(elements));
  }
  return 0;
}

double AveragingBits(AveragingCodec codec) {
  return static_cast<double>(AveragingBytes(codec, kAveragingGroup)) * 8.0 / kAveragingGroup;
}

bool EncodeAveraging(AveragingCodec codec, absl::Span<const float> values, absl::Span<uint8_t> out) {
  const uint32_t columns = static_cast<uint32_t>(values.size());
  switch (codec) {
    case AveragingCodec::kFp32:
      return Encode(WireFormat::kFp32, 1, columns, values, nullptr, out);
    case AveragingCodec::kBf16:
      return Encode(WireFormat::kBf16, 1, columns, values, nullptr, out);
    case AveragingCodec::kInt8:
      return Encode(kEightBits, 1, columns, values, nullptr, out);
    case AveragingCodec::kInt4:
      return Encode(kFourBits, 1, columns, values, nullptr, out);
  }
  return false;
}

bool DecodeAveraging(AveragingCodec codec, absl::Span<const uint8_t> encoded, absl::Span<float> values) {
  const uint32_t columns = static_cast<uint32_t>(values.size());
  switch (codec) {
    case AveragingCodec::kFp32:
      return Decode(WireFormat::kFp32, 1, columns, encoded, values);
    case AveragingCodec::kBf16:
      return Decode(WireFormat::kBf16, 1, columns, encoded, values);
    case AveragingCodec::kInt8:
      return Decode(kEightBits, 1, columns, encoded, values);
    case AveragingCodec::kInt4:
      return Decode(kFourBits, 1, columns, encoded, values);
  }
  return false;
}

}  // namespace stagecoach
