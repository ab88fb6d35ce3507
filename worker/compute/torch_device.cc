#include "worker/compute/torch_device.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/host_memory.h"
#include "model/stage_model.h"

namespace stagecoach {

absl::StatusOr<at::Device> OpenTorchDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  absl::string_view rest = name;
  uint32_t index = 0;
  const bool is_cuda =
      absl::ConsumePrefix(&rest, "cuda") &&
      (rest.empty() || (absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &index) && index < 128));
  if (!is_cuda) {
    return absl::InvalidArgumentError(absl::StrCat("device must be cpu, cuda or cuda:N, got \"", name, "\""));
  }
  const std::string missing = LoadCudaBackend();
  if (!missing.empty()) return absl::FailedPreconditionError(absl::StrCat("device ", name, ": ", missing));
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

uint64_t FreeMemoryBytes(at::Device device) {
  if (device.is_cpu()) return AvailableMemoryBytes();
  return at::getDeviceAllocator(device.type())
      ->getMemoryInfo(device.has_index() ? device.index() : at::DeviceIndex{0})
      .first;
}

}  // namespace stagecoach
