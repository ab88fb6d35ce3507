#include "worker/compute/activation_memory.h"

#include "common/model_shape.h"

namespace stagecoach {
namespace {

// Up to this share of the free memory goes to kept activations: several workers may share one machine, and each decides
// for itself before the others have allocated.
constexpr uint64_t kShareOfAvailable = 8;

}  // namespace

uint64_t BlockActivationBytes(const RunConfig& config) {
  ModelShape shape;
  shape.width = static_cast<uint64_t>(config.model.width);
  shape.heads = static_cast<uint64_t>(config.model.heads);
  shape.feedforward = static_cast<uint64_t>(config.model.feedforward);
  return UnitActivationBytes(shape, UnitKind::kBlock, config.sequences, config.tokens);
}

bool ChooseRecompute(const RunConfig& config, uint64_t blocks, uint64_t window, uint64_t available_bytes) {
  if (config.recompute != RecomputeMode::kAuto) return config.recompute == RecomputeMode::kOn;
  return blocks * window * BlockActivationBytes(config) > available_bytes / kShareOfAvailable;
}

}  // namespace stagecoach
