// Norms over rows with their gradients, fused on the CPU (one pass each way), made of tensor operations elsewhere.
//   RmsNorm:      gain * x / sqrt(|x|^2/width + eps)
//   AddRowNorm:   residual + z / sqrt(|z|^2/divisor + eps): the reordered gain-free norm. z may be coordinates (k wide)
//                 of a d-wide vector: |z U'| = |z|, so divisor = d gives exactly the norm of the d-wide row.
//
// Threading: pure functions. Sums run in 16 fixed lanes, so the bits do not depend on the CPU.
#pragma once

#include <ATen/ATen.h>

namespace stagecoach {

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& gain, double epsilon);
at::Tensor AddRowNorm(const at::Tensor& residual, const at::Tensor& z, double divisor, double epsilon);

}  // namespace stagecoach
