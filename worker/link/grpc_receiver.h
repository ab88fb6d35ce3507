// What a receiving stream is apart from its call: identity, limits, assembler, and the frames on their way to the
// owner. Internal to the gRPC link.
//
// Threading: callbacks and Deliver on the loop; the assembler belongs to the call's reads; counters are atomic.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "worker/link/grpc_receive_call.h"
#include "worker/link/peer_link.h"
#include "worker/link/socket_bytes.h"
#include "worker/tensor/frame_assembler.h"

namespace stagecoach {

struct GrpcReceiver {
  GrpcReceiver(uint64_t receiver_id, StreamIdentity stream_identity, uint64_t first_sequence,
               ReceiveLimits receive_limits, ReceiverCallbacks receiver_callbacks,
               std::shared_ptr<HostBufferPool> pool);

  const uint64_t id;
  const StreamIdentity identity;
  const ReceiveLimits limits;
  FrameAssembler assembler;
  std::atomic<uint64_t> next_sequence;  // of the assembler, for other threads
  std::atomic<uint64_t> frames{0}, payload_bytes{0};
  std::atomic<uint32_t> undelivered{0};  // posted to the loop and not yet handed to the owner
  // Tensor payloads that the owner has not let go of. Shared with the payloads, which may outlive everything else.
  const std::shared_ptr<std::atomic<uint32_t>> held;

  // Loop only.
  ReceiverCallbacks callbacks;
  bool closed = false;
  std::unique_ptr<SocketBytes> socket;
  MonoTime last_sample{};

  // Guarded by the set's mutex.
  bool bound = false;  // has or had a sender: a stream that failed stays failed
  std::shared_ptr<GrpcCallGate> gate;
};

}  // namespace stagecoach
