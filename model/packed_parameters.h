// The parameters of a stage without the padding of its flat buffer, in canonical order: the vector that clusters
// average. Stages behind each other give the vector of the whole model, wherever it is cut.
//
// Threading: pure functions.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/stage_model.h"

namespace stagecoach {

// `flat`: any device. Appends to `packed`.
void PackParameters(const std::vector<ParameterInfo>& parameters, const at::Tensor& flat, std::vector<float>* packed);

// Writes into `flat` what PackParameters would read. Returns how many numbers it took from the front of `packed`.
size_t UnpackParameters(const std::vector<ParameterInfo>& parameters, absl::Span<const float> packed, at::Tensor flat);

// Of each unit, ascending.
std::vector<uint64_t> UnitParameters(const std::vector<ParameterInfo>& parameters);

}  // namespace stagecoach
