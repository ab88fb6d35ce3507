// CRC32C (Castagnoli) of bytes, in hardware where the CPU has SSE 4.2.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

// Checksum of `bytes`; `previous` = checksum of the bytes before them, so that pieces can be added one after the other.
uint32_t Crc32c(absl::Span<const uint8_t> bytes, uint32_t previous = 0);

}  // namespace stagecoach
