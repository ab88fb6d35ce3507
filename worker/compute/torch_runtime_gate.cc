#include "worker/compute/torch_runtime_gate.h"

#include "common/status_macros.h"
#include "model/stage_model.h"
#include "worker/compute/torch_device.h"

namespace stagecoach {

absl::Status StartTorch(const std::string& device, int threads) {
  // The device first: the CUDA backend registers only if nothing has asked torch for a device yet.
  RETURN_IF_ERROR(OpenTorchDevice(device).status());
  ConfigureTorch(threads);
  return absl::OkStatus();
}

void SetTorchThreads(int threads) { ConfigureTorch(threads); }
uint64_t FreeTorchMemoryBytes(const std::string& device) {
  const auto opened = OpenTorchDevice(device);
  return opened.ok() ? FreeMemoryBytes(*opened) : 0;
}
std::string TorchLibraryVersion() { return TorchVersion(); }
std::string TorchLibraryCapability() { return TorchCpuCapability(); }

}  // namespace stagecoach
