// Rounds between clusters: the torch executor's weights on the host and back.
#include "absl/strings/str_cat.h"
#include "model/packed_parameters.h"
#include "worker/compute/torch_errors.h"
#include "worker/compute/torch_stage_executor.h"

namespace stagecoach {

std::vector<uint64_t> TorchStageExecutor::unit_parameters() const { return UnitParameters(model_.parameters()); }

absl::StatusOr<std::vector<float>> TorchStageExecutor::ReadWeights(uint32_t buffer) {
  return CatchTorch("copying weights for a round", [&]() -> absl::StatusOr<std::vector<float>> {
    std::vector<float> weights;
    weights.reserve(parameter_count());
    PackParameters(model_.parameters(), buffers_[buffer].flat, &weights);
    return weights;
  });
}

absl::Status TorchStageExecutor::WriteWeights(uint32_t buffer, absl::Span<const float> weights) {
  if (weights.size() != parameter_count()) {
    return absl::InternalError(
        absl::StrCat("a round gave ", weights.size(), " weights, the stage has ", parameter_count()));
  }
  return CatchTorch("applying a round", [&]() -> absl::Status {
    UnpackParameters(model_.parameters(), weights, buffers_[buffer].flat);
    return absl::OkStatus();
  });
}

}  // namespace stagecoach
