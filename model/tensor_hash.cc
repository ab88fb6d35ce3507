#include "model/tensor_hash.h"

#include "common/sha256.h"

namespace stagecoach {

std::string TensorsSha256(const std::vector<at::Tensor>& tensors) {
  Sha256 hash;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
    hash.Update(absl::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
  }
  return hash.FinishHex();
}

}  // namespace stagecoach
