// One forwarded TCP connection: two sockets, and a flow of bytes in each direction.
//
// Sockets are non-blocking and registered edge-triggered; readiness is remembered in `Endpoint` until a call would
// block.
//
// Threading: the emulator's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "cli/linkem/link_path.h"

namespace stagecoach {

class ProxiedConnection;

// What an epoll event points to.
struct Endpoint {
  int fd = -1;
  bool readable = false;
  bool writable = false;
  ProxiedConnection* connection = nullptr;
};

// Bytes of one direction of a connection that are under way on the emulated link.
class Flow {
 public:
  Flow(Endpoint* source, Endpoint* sink) : source_(source), sink_(sink) {}

  bool WantsToRead(const LinkPath& path) const {
    return !read_end_ && source_->readable && in_flight_ < path.max_in_flight();
  }
  // Takes one piece from the source onto the link. False: the connection is broken.
  bool ReadPiece(LinkPath& path, LinkTime now, std::vector<char>& scratch);
  // Delivers everything that is due. False: the connection is broken.
  bool WriteDue(LinkTime now);
  // When WriteDue has something to do; LinkTime::max() = not before an event.
  LinkTime NextDue() const;
  bool finished() const { return write_end_; }
  ProxiedConnection* connection() const { return source_->connection; }

 private:
  struct Piece {
    LinkTime due;
    std::string bytes;  // empty: the end of the stream
    size_t sent = 0;
  };
  Endpoint* const source_;
  Endpoint* const sink_;
  std::deque<Piece> pieces_;  // bounded by path.max_in_flight
  size_t in_flight_ = 0;
  bool read_end_ = false;
  bool write_end_ = false;
};

class ProxiedConnection {
 public:
  // Owns both descriptors. `target_fd` is connecting.
  ProxiedConnection(int source_fd, int target_fd);
  ~ProxiedConnection();
  ProxiedConnection(const ProxiedConnection&) = delete;
  ProxiedConnection& operator=(const ProxiedConnection&) = delete;

  void OnEvent(Endpoint& endpoint, uint32_t events);
  void Break() { broken_ = true; }
  bool closed() const { return broken_ || (forward.finished() && backward.finished()); }

  Endpoint source, target;
  Flow forward, backward;

 private:
  bool connected_ = false;
  bool broken_ = false;
};

}  // namespace stagecoach
