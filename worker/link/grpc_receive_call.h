// One receiving call: reads Hello, finds its receiver, reads frames with at most one read outstanding, writes lazy
// acknowledgements. Internal to the gRPC link.
//
//   kHello --Hello--> kWaiting --receiver registered--> kOpen --Finish--> (finishing) --OnDone--> deleted
//        \--receiver is there already------------------^
//
// Threading: reactions on gRPC threads; the others with the gate's mutex held, which OnDone takes before the call goes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/event_loop.h"
#include "protos/link.grpc.pb.h"
#include "worker/link/hello.h"
#include "worker/tensor/frame_assembler.h"

namespace stagecoach {

class GrpcReceiveCall;
struct GrpcReceiver;
struct GrpcServerSet;

// The way to a call from outside. `call` is null once gRPC is done with it.
struct GrpcCallGate {
  std::mutex mutex;
  GrpcReceiveCall* call = nullptr;
};

class GrpcReceiveCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcReceiveCall(std::shared_ptr<GrpcServerSet> set, grpc::CallbackServerContext* context);
  const std::shared_ptr<GrpcCallGate>& gate() const { return gate_; }
  void Begin();  // once the set knows the gate

  // The gate's mutex is held for all of these.
  void Open(std::shared_ptr<GrpcReceiver> receiver);
  void Refuse(RejectReason reason, const absl::Status& status);
  void FinishWith(const absl::Status& status);
  void Acknowledge();
  void ResumeReading();  // the owner has consumed a frame
  void RetryMessage();   // memory may have come back to the pool
  void Tick(MonoTime now, bool we_slept);

  void OnReadDone(bool ok) noexcept override;
  void OnWriteDone(bool ok) noexcept override;
  void OnCancel() noexcept override;
  void OnDone() noexcept override;

 private:
  enum class State { kHello, kWaiting, kOpen };
  void HandleHello();
  FrameAssembler::Outcome HandleFrame();
  void AfterFrame(FrameAssembler::Outcome outcome);
  bool Deliver();
  void ReadMore();
  void NotifyClosed(const absl::Status& status);

  const std::shared_ptr<GrpcServerSet> set_;
  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<GrpcCallGate> gate_;
  const std::string peer_;
  std::shared_ptr<GrpcReceiver> receiver_;
  grpc::ByteBuffer message_, response_;

  // Guarded by the gate's mutex.
  State state_ = State::kHello;
  bool writing_ = false, ack_waits_ = false;
  bool finish_wanted_ = false, finished_ = false;
  absl::Status finish_status_;
  bool reading_paused_ = false, message_waits_ = false;
  bool closed_notified_ = false;
  bool in_the_middle_ = false;  // of a frame
  bool cancelled_ = false;      // by the sender, or its connection is gone
  uint32_t frames_since_ack_ = 0;
  bool answer_accepted_ = false;  // the next acknowledgement is the answer to Hello
  MonoTime opened_{}, last_heard_{}, last_ack_{}, finish_since_{};
};

}  // namespace stagecoach
