#include "model/packed_parameters.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace stagecoach {

void PackParameters(const std::vector<ParameterInfo>& parameters, const at::Tensor& flat, std::vector<float>* packed) {
  const at::Tensor host = flat.detach().cpu().contiguous();
  const float* const values = host.const_data_ptr<float>();
  for (const ParameterInfo& info : parameters) {
    packed->insert(packed->end(), values + info.offset, values + info.offset + info.numel);
  }
}

size_t UnpackParameters(const std::vector<ParameterInfo>& parameters, absl::Span<const float> packed, at::Tensor flat) {
  const at::NoGradGuard no_grad;
  at::Tensor host = at::zeros({flat.numel()}, at::kFloat);  // padding is 0
  float* const values = host.mutable_data_ptr<float>();
  const float* next = packed.data();
  for (const ParameterInfo& info : parameters) {
    std::copy_n(next, info.numel, values + info.offset);
    next += info.numel;
  }
  flat.copy_(host);
  return static_cast<size_t>(next - packed.data());
}

std::vector<uint64_t> UnitParameters(const std::vector<ParameterInfo>& parameters) {
  std::vector<uint64_t> counts;
  for (size_t q = 0; q < parameters.size(); ++q) {
    if (q == 0 || parameters[q].unit != parameters[q - 1].unit) counts.push_back(0);
    counts.back() += static_cast<uint64_t>(parameters[q].numel);
  }
  return counts;
}

}  // namespace stagecoach
