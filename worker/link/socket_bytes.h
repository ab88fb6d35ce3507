// Bytes that one TCP connection of this process carried, as the kernel counts them: what really went over the wire,
// framing included, retransmissions excluded.
//
// Threading: one thread at a time (the list of taken connections has a leaf lock); a few system calls each. Errors: a
// connection that cannot be found or is gone keeps its last figures.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

class SocketBytes {
 public:
  // Finds a connection to `peer` that no other SocketBytes of this process has: it tells apart several connections to
  // the same peer. peer: as gRPC writes it, "ipv4:127.0.0.1:4000" or "ipv6:%5B::1%5D:4000".
  explicit SocketBytes(const std::string& peer);
  ~SocketBytes();
  SocketBytes(const SocketBytes&) = delete;
  SocketBytes& operator=(const SocketBytes&) = delete;

  void Sample();
  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }
  bool found() const { return fd_ >= 0; }

 private:
  std::string host_;
  uint16_t peer_port_ = 0;
  int fd_ = -1;
  uint16_t local_port_ = 0;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace stagecoach
