// y = x W^T (+ bias) with W stored (out, in). bf16 compute: operands are rounded to bf16, the result is widened to
// fp32.
#pragma once

#include <ATen/ATen.h>

#include "model/run_config.h"

namespace stagecoach {

// What matrix products are computed in: models in double (gradient checks) stay in double.
inline bool RoundsToBf16(ComputeType compute, const at::Tensor& x) {
  return compute == ComputeType::kBf16 && x.scalar_type() == at::kFloat;
}

inline at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, ComputeType compute) {
  if (RoundsToBf16(compute, x)) {
    const at::Tensor y = at::mm(x.to(at::kBFloat16), weight.to(at::kBFloat16).t()).to(at::kFloat);
    return bias.defined() ? y + bias : y;
  }
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

}  // namespace stagecoach
