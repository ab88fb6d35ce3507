// A measured quantity that drifts: exponentially weighted mean and variance, bias-corrected, alpha 0.2 a sample
// (design: weights of the samples (1-alpha)^age; the mean is divided by 1 - (1-alpha)^n, as in Adam).
//
// Threading: a value. Units are the caller's.
#pragma once

#include <cmath>
#include <cstdint>

namespace stagecoach {

class Estimate {
 public:
  // A sample that is itself the mean of `count` observations weighs as much as they would one by one.
  void Add(double mean, uint64_t count = 1) {
    if (count == 0) return;
    const double keep = std::pow(1 - kAlpha, static_cast<double>(count));
    weight_ = keep * weight_ + (1 - keep);
    sum_ = keep * sum_ + (1 - keep) * mean;
    square_sum_ = keep * square_sum_ + (1 - keep) * mean * mean;
    samples_ += count;
  }

  uint64_t samples() const { return samples_; }
  double value() const { return weight_ == 0 ? 0 : sum_ / weight_; }
  double variance() const { return weight_ == 0 ? 0 : std::fmax(0.0, square_sum_ / weight_ - value() * value()); }

 private:
  static constexpr double kAlpha = 0.2;
  double weight_ = 0, sum_ = 0, square_sum_ = 0;
  uint64_t samples_ = 0;
};

}  // namespace stagecoach
