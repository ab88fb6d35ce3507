// The executor that computes with libtorch. Sees no torch header: the functions come from worker/compute.
#include "worker/compute/torch_runtime_gate.h"
#include "worker/main/compute_backend.h"

namespace stagecoach {

absl::StatusOr<ComputeBackend> TorchBackend(const std::string& device, int threads) {
  const absl::Status status = StartTorch(device, threads);
  if (!status.ok()) return status;
  ComputeBackend backend;
  // The run's thread count is part of its arithmetic; the flag is what the process begins with.
  backend.create = [](const ExecutorOptions& options) {
    SetTorchThreads(options.config.threads);
    return CreateTorchExecutor(options);
  };
  backend.measure = [device](const RunConfig& config) {
    SetTorchThreads(config.threads);
    return MeasureTorchUnits(config, device);
  };
  backend.fingerprint = [](const RunConfig& config) { return TorchFingerprint(config); };
  if (device != "cpu") backend.free_memory = [device] { return FreeTorchMemoryBytes(device); };
  backend.device = device;
  backend.torch_version = TorchLibraryVersion();
  backend.cpu_capability = TorchLibraryCapability();
  return backend;
}

}  // namespace stagecoach
