// Frame streams between worker processes over gRPC: one connection for each direction of each boundary.
//
//   sender                              receiver
//     |-- Frame{hello} ------------------>|   waits until a receiver of this identity is registered (bounded)
//     |<- LinkControl{accepted, next} ----|   or the call ends with the reason
//     |-- Frame chunks ------------------>|   checked, copied once into pooled buffers, delivered in order
//     |<- LinkControl{next} --------------|   every 64 frames, or when it was silent for 250 ms
//     |-- Frame{kind unspecified} ------->|   a tick, when the sender had nothing to send for 1 s
//
// Threading: Create, Shutdown and the destructor on a thread that is neither the loop nor gRPC's; Shutdown waits, and
// the loop must still run then. OpenSender, OpenReceiver and everything they return: on the loop. listen_port,
// rejections: any thread. Errors: on_closed carries UNAVAILABLE when the peer or the connection is gone or
// silent for silence_seconds, INVALID_ARGUMENT, DATA_LOSS, FAILED_PRECONDITION, ABORTED and RESOURCE_EXHAUSTED when one
// side refused the other. Ownership: the loop and the pool outlive the factory. Senders and receivers may be destroyed
// before or after Shutdown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/event_loop.h"
#include "worker/link/peer_link.h"
#include "worker/tensor/host_buffer.h"

namespace stagecoach {

struct GrpcLinkOptions {
  EventLoop* loop = nullptr;
  std::shared_ptr<HostBufferPool> pool;    // payloads of received frames; its cap bounds what peers can make us hold
  std::string listen = "127.0.0.1:0";      // host:port; port 0 = any free one
  uint64_t incarnation = 0;                // ours; 0 = do not compare before a receiver is known
  size_t quota_bytes = size_t{256} << 20;  // what all connections together may make gRPC hold, beside the pool
  double silence_seconds = 10.0;           // a stream without any sign of life for so long is UNAVAILABLE
  double hello_wait_seconds = 30.0;        // how long a sender may be early
};

class GrpcLinkFactory final : public LinkFactory {
 public:
  // UNAVAILABLE if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcLinkFactory>> Create(GrpcLinkOptions options);
  ~GrpcLinkFactory() override;

  std::unique_ptr<FrameSender> OpenSender(const std::string& address, const StreamIdentity& identity,
                                          uint64_t first_sequence, double connect_seconds,
                                          SenderCallbacks callbacks) override;
  std::unique_ptr<FrameReceiver> OpenReceiver(const StreamIdentity& identity, uint64_t first_sequence,
                                              const ReceiveLimits& limits, ReceiverCallbacks callbacks) override;

  int listen_port() const;
  // What was refused or dropped, by reason (worker/tensor/reject_reason.h), since the start.
  std::map<std::string, uint64_t> rejections() const;
  // Ends every stream; no callback runs afterwards. Idempotent.
  void Shutdown();

 private:
  struct Parts;
  explicit GrpcLinkFactory(std::shared_ptr<Parts> parts);
  const std::shared_ptr<Parts> parts_;
};

}  // namespace stagecoach
