// What a worker computes with: libtorch, or the fake arithmetic. Chosen once at start; everything behind it is the
// same.
//
// Threading: the functions are called on the compute thread. Errors: those of executor_factory.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/compute/executor_factory.h"

namespace stagecoach {

struct ComputeBackend {
  std::function<absl::StatusOr<std::unique_ptr<StageExecutor>>(const ExecutorOptions&)> create;
  std::function<absl::StatusOr<MeasuredUnits>(const RunConfig&)> measure;
  std::function<absl::StatusOr<ExecutorFingerprint>(const RunConfig&)> fingerprint;
  std::function<uint64_t()> free_memory;  // of the device that the stage's tensors lie on, bytes
  std::string device = "cpu";
  std::string torch_version;  // empty with the fake one
  std::string cpu_capability;
};

// Sleeps `costs` for every unit of the stage. A probe reports the costs themselves.
ComputeBackend FakeBackend(const FakeCosts& costs_per_unit);

// FAILED_PRECONDITION: this build has no libtorch, or the device is not there.
absl::StatusOr<ComputeBackend> TorchBackend(const std::string& device, int threads);

}  // namespace stagecoach
