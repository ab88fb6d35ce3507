#include "worker/compute/activation_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace stagecoach {
namespace {

// Up to this share of the free memory goes to kept activations: several workers may share one machine, and each decides
// for itself before the others have allocated.
constexpr uint64_t kShareOfAvailable = 8;

uint64_t ReadNumber(const char* path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;  // "max" does not parse: no limit
}

uint64_t MemAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kilobytes = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

uint64_t BlockActivationBytes(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const uint64_t rows = uint64_t{config.sequences} * config.tokens;
  const auto width = static_cast<uint64_t>(model.width), hidden = static_cast<uint64_t>(model.feedforward);
  // Inputs of the matrix products and norms, q, k, v, attention probabilities, the gate's factors.
  const uint64_t numbers = 8 * width + 4 * hidden + 2 * static_cast<uint64_t>(model.heads) * config.tokens;
  return rows * numbers * sizeof(float);
}

uint64_t AvailableMemoryBytes() {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  const uint64_t limit = ReadNumber("/sys/fs/cgroup/memory.max", kNoLimit);
  const uint64_t used = ReadNumber("/sys/fs/cgroup/memory.current", 0);
  return std::min(MemAvailable(), limit == kNoLimit ? kNoLimit : limit - std::min(limit, used));
}

bool ChooseRecompute(const RunConfig& config, uint64_t blocks, uint64_t window, uint64_t available_bytes) {
  if (config.recompute != RecomputeMode::kAuto) return config.recompute == RecomputeMode::kOn;
  return blocks * window * BlockActivationBytes(config) > available_bytes / kShareOfAvailable;
}

}  // namespace stagecoach
