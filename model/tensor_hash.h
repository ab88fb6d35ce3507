// SHA-256 of what a tensor holds.
//
// Threading: pure functions.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace stagecoach {

// Hex digest over the elements of the tensors, one after the other, row-major, little endian.
std::string TensorsSha256(const std::vector<at::Tensor>& tensors);

}  // namespace stagecoach
