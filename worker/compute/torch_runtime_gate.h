// Starts libtorch for a program that must not see its headers.
//
// Threading: StartTorch first thing on the main thread, before anything else of torch; the others afterwards, anywhere.
// Errors: INVALID_ARGUMENT (no such device name), FAILED_PRECONDITION (the device is not there), both say what to do.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace stagecoach {

// Opens the device's backend and sets what must be equal everywhere (threads, deterministic algorithms).
absl::Status StartTorch(const std::string& device, int threads);
// The thread count is also a property of the calling thread: set it on the one that computes.
void SetTorchThreads(int threads);
uint64_t FreeTorchMemoryBytes(
    const std::string& device);  // of a device that was started; 0 if there is none of that name
std::string TorchLibraryVersion();
std::string TorchLibraryCapability();

}  // namespace stagecoach
