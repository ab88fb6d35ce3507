#include "worker/link/grpc_server_set.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagecoach {

GrpcReceiver::GrpcReceiver(uint64_t receiver_id, StreamIdentity stream_identity, uint64_t first_sequence,
                           ReceiveLimits receive_limits, ReceiverCallbacks receiver_callbacks,
                           std::shared_ptr<HostBufferPool> pool)
    : id(receiver_id),
      identity(std::move(stream_identity)),
      limits(receive_limits),
      assembler({identity.epoch, identity.sender_incarnation, first_sequence, limits.tensor_bytes,
                 limits.max_control_bytes, limits.max_piece_bytes},
                std::move(pool)),
      next_sequence(first_sequence),
      held(std::make_shared<std::atomic<uint32_t>>(0)),
      callbacks(std::move(receiver_callbacks)) {}

bool GrpcServerSet::Stopping() {
  std::lock_guard<std::mutex> lock(mutex);
  return stopping;
}

bool GrpcServerSet::Admit(const std::shared_ptr<GrpcCallGate>& gate) {
  std::lock_guard<std::mutex> lock(mutex);
  calls.insert(gate);
  return calls.size() <= kMaxCalls && !stopping;
}

void GrpcServerSet::Forget(const std::shared_ptr<GrpcCallGate>& gate) {
  std::lock_guard<std::mutex> lock(mutex);
  calls.erase(gate);
  waiting.erase(gate);
}

std::shared_ptr<GrpcReceiver> GrpcServerSet::Match(const std::shared_ptr<GrpcCallGate>& gate, const Hello& hello,
                                                   std::optional<Refusal>* refusal) {
  if (options.incarnation != 0 && hello.receiver_incarnation() != options.incarnation) {
    *refusal = Refusal{
        RejectReason::kIncarnation,
        absl::AbortedError(absl::StrCat(DescribeStream(hello), " refused: meant for another life of the receiver"))};
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [id, receiver] : receivers) {
    if (!SameStreamKey(hello, receiver->identity)) continue;
    Refusal reason;
    const HelloMatch match = MatchHello(hello, receiver->identity, receiver->next_sequence, &reason);
    if (match == HelloMatch::kWait) continue;
    if (match == HelloMatch::kRefuse) {
      *refusal = std::move(reason);
      return nullptr;
    }
    if (receiver->bound) {
      *refusal =
          Refusal{RejectReason::kDuplicate,
                  absl::FailedPreconditionError(absl::StrCat(DescribeStream(hello), " refused: it was open already"))};
      return nullptr;
    }
    receiver->bound = true;
    receiver->gate = gate;
    return receiver;
  }
  if (waiting.size() >= kMaxWaitingCalls) {
    *refusal = Refusal{
        RejectReason::kOverLimit,
        absl::ResourceExhaustedError(absl::StrCat("too many streams wait for a receiver: limit=", kMaxWaitingCalls))};
    return nullptr;
  }
  waiting[gate] = hello;
  return nullptr;
}

void GrpcServerSet::OfferWaiting(const std::shared_ptr<GrpcReceiver>& receiver) {
  std::vector<std::pair<std::shared_ptr<GrpcCallGate>, Refusal>> refused;
  std::shared_ptr<GrpcCallGate> accepted;
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto it = waiting.begin(); it != waiting.end();) {
      Refusal reason;
      if (!SameStreamKey(it->second, receiver->identity)) {
        ++it;
        continue;
      }
      const HelloMatch match = MatchHello(it->second, receiver->identity, receiver->next_sequence, &reason);
      if (match == HelloMatch::kWait || (match == HelloMatch::kAccept && receiver->bound)) {
        ++it;
        continue;
      }
      if (match == HelloMatch::kAccept) {
        receiver->bound = true;
        receiver->gate = it->first;
        accepted = it->first;
      } else {
        refused.emplace_back(it->first, std::move(reason));
      }
      it = waiting.erase(it);
    }
  }
  for (const auto& [gate, reason] : refused) {
    std::lock_guard<std::mutex> lock(gate->mutex);
    if (gate->call != nullptr) gate->call->Refuse(reason.reason, reason.status);
  }
  if (accepted == nullptr) return;
  bool opened = false;
  {
    std::lock_guard<std::mutex> lock(accepted->mutex);
    opened = accepted->call != nullptr;
    if (opened) accepted->call->Open(receiver);
  }
  if (!opened) {  // it went away in this moment; the next one may have the receiver
    std::lock_guard<std::mutex> lock(mutex);
    receiver->bound = false;
    receiver->gate = nullptr;
  }
}

}  // namespace stagecoach
