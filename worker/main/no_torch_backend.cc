// Stands in for torch_backend.cc in builds without libtorch.
#include "worker/main/compute_backend.h"

namespace stagecoach {

absl::StatusOr<ComputeBackend> TorchBackend(const std::string& device, int) {
  return absl::FailedPreconditionError("this build has no libtorch (WITH_TORCH=OFF): use --executor fake; device=" +
                                       device);
}

}  // namespace stagecoach
