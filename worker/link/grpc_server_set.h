// The receivers and the calls of a process, and which belongs to which. Internal to the gRPC link.
//
// Threading: any thread; `mutex` is taken before a gate's mutex never after it (Match is called without the gate's).
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "worker/link/grpc_frame_server.h"
#include "worker/link/grpc_receive_call.h"
#include "worker/link/grpc_receiver.h"

namespace stagecoach {

constexpr size_t kMaxCalls = 256;        // a worker has two or four neighbours; the rest is for restarts
constexpr size_t kMaxWaitingCalls = 64;  // senders that came before their receiver

struct GrpcServerSet : std::enable_shared_from_this<GrpcServerSet> {
  GrpcFrameServerOptions options;
  RejectCounts rejects;

  std::mutex mutex;
  bool stopping = false;
  MonoTime last_tick{};
  uint64_t next_id = 0;
  std::map<uint64_t, std::shared_ptr<GrpcReceiver>> receivers;
  std::set<std::shared_ptr<GrpcCallGate>> calls;
  std::map<std::shared_ptr<GrpcCallGate>, Hello> waiting;

  bool Admit(const std::shared_ptr<GrpcCallGate>& gate);  // false: too many
  void Forget(const std::shared_ptr<GrpcCallGate>& gate);
  // Finds the receiver of a Hello. Null and *refusal set: refused. Null and not set: it waits.
  std::shared_ptr<GrpcReceiver> Match(const std::shared_ptr<GrpcCallGate>& gate, const Hello& hello,
                                      std::optional<Refusal>* refusal);
  // Senders that have waited for this receiver: opens the fitting one, refuses the others.
  void OfferWaiting(const std::shared_ptr<GrpcReceiver>& receiver);
  bool Stopping();
};

}  // namespace stagecoach
