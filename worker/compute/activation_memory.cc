#include "worker/compute/activation_memory.h"

namespace stagecoach {
namespace {

// Up to this share of the free memory goes to kept activations: several workers may share one machine, and each decides
// for itself before the others have allocated.
constexpr uint64_t kShareOfAvailable = 8;

}  // namespace

uint64_t BlockActivationBytes(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const uint64_t rows = uint64_t{config.sequences} * config.tokens;
  const auto width = static_cast<uint64_t>(model.width), hidden = static_cast<uint64_t>(model.feedforward);
  // Inputs of the matrix products and norms, q, k, v, attention probabilities, the gate's factors.
  const uint64_t numbers = 8 * width + 4 * hidden + 2 * static_cast<uint64_t>(model.heads) * config.tokens;
  return rows * numbers * sizeof(float);
}

bool ChooseRecompute(const RunConfig& config, uint64_t blocks, uint64_t window, uint64_t available_bytes) {
  if (config.recompute != RecomputeMode::kAuto) return config.recompute == RecomputeMode::kOn;
  return blocks * window * BlockActivationBytes(config) > available_bytes / kShareOfAvailable;
}

}  // namespace stagecoach
