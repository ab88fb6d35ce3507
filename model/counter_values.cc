#include "model/counter_values.h"

#include <array>
#include <cmath>

namespace stagecoach {
namespace {

// Sum of the two 16-bit halves of a word.
constexpr uint32_t Halves(uint32_t word) { return (word & 0xffffu) + (word >> 16); }

constexpr int32_t kMeanOfFour = 131070;  // 4 * 65535 / 2
constexpr int32_t kMeanOfEight = 262140;
constexpr double kSqrt3 = 1.7320508075688772;
constexpr double kSqrt1Half = 1.2247448713915890;  // sqrt(12/8): one 16-bit integer has variance 65536^2/12

}  // namespace

void FillGaussian(const CounterRng& rng, double deviation, float* out, int64_t count) {
  const double scale = deviation * (kSqrt1Half / 65536.0);
  for (int64_t i = 0; i < count; ++i) {
    const std::array<uint32_t, 4> words = rng.Block(static_cast<uint64_t>(i));
    const uint32_t sum = Halves(words[0]) + Halves(words[1]) + Halves(words[2]) + Halves(words[3]);
    out[i] = static_cast<float>(static_cast<double>(static_cast<int32_t>(sum) - kMeanOfEight) * scale);
  }
}

void FillAnchorRow(const CounterRng& rng, uint64_t row, int64_t width, float* out) {
  constexpr float kScale = static_cast<float>(kSqrt3 / 65536.0);
  for (int64_t j = 0; j < width; j += 2) {
    const std::array<uint32_t, 4> words = rng.Block((row << 32) + static_cast<uint64_t>(j / 2));
    const int32_t first = static_cast<int32_t>(Halves(words[0]) + Halves(words[1])) - kMeanOfFour;
    const int32_t second = static_cast<int32_t>(Halves(words[2]) + Halves(words[3])) - kMeanOfFour;
    out[j] = static_cast<float>(first) * kScale;
    if (j + 1 < width) out[j + 1] = static_cast<float>(second) * kScale;
  }
}

void FillDropoutMask(const CounterRng& rng, uint64_t first_block, float probability, float* out, int64_t count) {
  const auto threshold = static_cast<uint32_t>(static_cast<double>(probability) * 4294967296.0);
  const float kept = 1.0f / (1.0f - probability);
  for (int64_t i = 0; i < count; i += 4) {
    const std::array<uint32_t, 4> words = rng.Block(first_block + static_cast<uint64_t>(i / 4));
    const int64_t left = count - i < 4 ? count - i : 4;
    for (int64_t j = 0; j < left; ++j) out[i + j] = words[static_cast<size_t>(j)] < threshold ? 0.0f : kept;
  }
}

}  // namespace stagecoach
