// Output matrix and mean cross entropy in one function, a chunk of rows at a time: logits of all tokens never exist at
// once, and the gradient is formed together with the loss.
#pragma once

#include <ATen/ATen.h>

#include "model/run_config.h"

namespace stagecoach {

// hidden: rows x d, weight: V x d, labels: int64. Returns the mean loss over the rows as a scalar for autograd;
// *loss_sum (may be null): the sum of the row losses in double, in row order.
at::Tensor HeadCrossEntropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                            ComputeType compute, double* loss_sum);

}  // namespace stagecoach
