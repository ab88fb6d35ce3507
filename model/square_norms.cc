// Square sums of gradients in double, in an order that does not depend on the machine or on where the model is cut.
#include <algorithm>

#include "model/stage_optimizer.h"

namespace stagecoach {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kSideBySide = 8;  // independent chains of additions: hides their latency, changes no sum

double SumBlock(const float* values, int64_t count, double scale) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]) * scale;
    sum += value * value;
  }
  return sum;
}

double SquareNorm(const float* values, int64_t count, double scale) {
  double total = 0;
  int64_t first = 0;
  for (; first + kSideBySide * kBlock <= count; first += kSideBySide * kBlock) {
    double sums[kSideBySide] = {};
    for (int64_t i = 0; i < kBlock; ++i) {
      for (int64_t b = 0; b < kSideBySide; ++b) {
        const double value = static_cast<double>(values[first + b * kBlock + i]) * scale;
        sums[b] += value * value;
      }
    }
    for (const double sum : sums) total += sum;
  }
  for (; first < count; first += kBlock) total += SumBlock(values + first, std::min(kBlock, count - first), scale);
  return total;
}

}  // namespace

std::vector<double> StageOptimizer::SquareNorms(const std::vector<at::Tensor>& gradients, double one_over_m) {
  std::vector<double> norms;
  norms.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor host = gradient.detach().to(at::kCPU).contiguous();
    norms.push_back(SquareNorm(host.const_data_ptr<float>(), host.numel(), one_over_m));
  }
  return norms;
}

}  // namespace stagecoach
