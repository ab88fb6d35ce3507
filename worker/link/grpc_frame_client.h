// The sending half of the gRPC link: one call on a connection of its own for each stream.
//
// Threading: Open, Tick on the loop; Shutdown on a thread that is neither the loop nor gRPC's. gRPC's threads only
// encode, note, and Post.
// Ownership: a channel must not die on a gRPC thread (it would wait for itself), so the set keeps every stream until
// its call has ended and drops it on the loop or in Shutdown.
#pragma once

#include <memory>
#include <string>

#include "common/event_loop.h"
#include "worker/link/peer_link.h"

namespace stagecoach {

struct GrpcClientSet;

class GrpcFrameClients {
 public:
  GrpcFrameClients(EventLoop* loop, double silence_seconds);
  ~GrpcFrameClients();

  std::unique_ptr<FrameSender> Open(const std::string& address, const StreamIdentity& identity, uint64_t first_sequence,
                                    double connect_seconds, SenderCallbacks callbacks);
  void Tick();  // every 250 ms
  void Shutdown();

 private:
  const std::shared_ptr<GrpcClientSet> set_;
};

}  // namespace stagecoach
