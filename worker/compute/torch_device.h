// The torch device behind a name: cpu, cuda, cuda:N.
//
// Threading: call on the compute thread, before anything else of torch there. Errors: INVALID_ARGUMENT for a name that
// is no device, FAILED_PRECONDITION for one that this machine does not have.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

absl::StatusOr<at::Device> OpenTorchDevice(const std::string& name);

// Memory that tensors on an open device may still take.
uint64_t FreeMemoryBytes(at::Device device);

}  // namespace stagecoach
