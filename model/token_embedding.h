// Rows of a trained table for token ids. The gradient adds positions in ascending order, so its bits are fixed.
#pragma once

#include <ATen/ATen.h>

namespace stagecoach {

// ids: int64, any shape. Returns numel x columns.
at::Tensor EmbedTokens(const at::Tensor& table, const at::Tensor& ids);

}  // namespace stagecoach
