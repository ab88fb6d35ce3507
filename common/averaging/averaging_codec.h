// How the numbers of a round are put on the wire: fp32, bf16, integers of 8 or 4 bits in groups of 64 (one bf16 scale a
// group, rounded up; round to nearest). The kernels are those of the pipeline's frames (common/codec).
//
// Threading: pure functions. Errors: false = a value is not finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

enum class AveragingCodec : uint8_t { kFp32 = 1, kBf16 = 2, kInt8 = 3, kInt4 = 4 };

constexpr uint32_t kAveragingGroup = 64;

const char* AveragingCodecName(AveragingCodec codec);
bool ParseAveragingCodec(absl::string_view name, AveragingCodec* codec);

// fp32 4n, bf16 2n, int8 n + 2 ceil(n/64), int4 ceil(n/2) + 2 ceil(n/64).
size_t AveragingBytes(AveragingCodec codec, size_t elements);

// Bits a parameter, scales included: for cost formulas.
double AveragingBits(AveragingCodec codec);

// `out` has AveragingBytes. False: a value is not finite, and out is zero.
bool EncodeAveraging(AveragingCodec codec, absl::Span<const float> values, absl::Span<uint8_t> out);
// False: a decoded value is not finite.
bool DecodeAveraging(AveragingCodec codec, absl::Span<const uint8_t> encoded, absl::Span<float> values);

}  // namespace stagecoach
