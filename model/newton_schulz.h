// Muon's orthogonalisation: pushes the singular values of a matrix towards 1.
#pragma once

#include <ATen/ATen.h>

namespace stagecoach {

// X / (|X| + 1e-7), transposed while rows > columns; five times A = XX', X = aX + (bA + cA^2)X. fp32.
at::Tensor NewtonSchulz(const at::Tensor& matrix);

}  // namespace stagecoach
