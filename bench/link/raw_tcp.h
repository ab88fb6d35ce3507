// The yardstick: bytes over one loopback TCP connection between two processes, with nothing around them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stagecoach {

// Listens, reports its port through `port_fd`, reads `total` bytes in pieces of at most `piece`. Seconds from the first
// byte to the last; negative: failed.
double ReceiveRawTcp(int port_fd, uint64_t total, size_t piece);
// Connects to the port and writes `total` bytes in pieces of `piece`. False: failed.
bool SendRawTcp(int port, uint64_t total, size_t piece);

}  // namespace stagecoach
