// The receiving half of the gRPC link: the PeerLink service, the receivers that wait for their senders, and the senders
// that came before their receiver.
//
// Threading: Start and Shutdown on a thread that is neither the loop nor gRPC's; Open and Tick on the loop.
// Ownership: a call deletes itself; others reach it through a gate that is closed before that.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/event_loop.h"
#include "worker/link/peer_link.h"
#include "worker/tensor/host_buffer.h"
#include "worker/tensor/reject_reason.h"

namespace stagecoach {

struct GrpcServerSet;

struct GrpcFrameServerOptions {
  EventLoop* loop = nullptr;
  std::shared_ptr<HostBufferPool> pool;
  std::string listen;
  uint64_t incarnation = 0;
  Duration silence{}, hello_wait{};
  size_t quota_bytes = 0;
};

class GrpcFrameServer {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcFrameServer>> Start(GrpcFrameServerOptions options);
  ~GrpcFrameServer();

  std::unique_ptr<FrameReceiver> Open(const StreamIdentity& identity, uint64_t first_sequence,
                                      const ReceiveLimits& limits, ReceiverCallbacks callbacks);
  void Tick();  // every 250 ms
  void Shutdown();
  int port() const { return port_; }
  const RejectCounts& rejects() const;

 private:
  explicit GrpcFrameServer(std::shared_ptr<GrpcServerSet> set);
  const std::shared_ptr<GrpcServerSet> set_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace stagecoach
