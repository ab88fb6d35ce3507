#include "worker/link/grpc_receive_call.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/grpc_status.h"
#include "worker/link/grpc_server_set.h"

namespace stagecoach {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kFramesPerAck = 64;    // lazy: they feed meters and signs of life, never credit
constexpr milliseconds kAckAfter(250);    // of silence
constexpr uint32_t kMaxUndelivered = 64;  // frames between gRPC and the loop; then reading pauses
constexpr milliseconds kMemoryRetry(5);   // while the pool is empty; the sender is held by flow control meanwhile
constexpr seconds kFinishAtMost(2);       // for an acknowledgement that the peer does not read
constexpr uint32_t kNonfiniteFlag = 1;

bool IsTensorKind(FrameKind kind) {
  return kind == FrameKind::kActivation || kind == FrameKind::kGradient || kind == FrameKind::kEvaluation;
}

}  // namespace

GrpcReceiveCall::GrpcReceiveCall(std::shared_ptr<GrpcServerSet> set, grpc::CallbackServerContext* context)
    : set_(std::move(set)), context_(context), gate_(std::make_shared<GrpcCallGate>()), peer_(context->peer()) {
  gate_->call = this;
  opened_ = last_heard_ = set_->options.loop->Now();
}

void GrpcReceiveCall::Begin() {
  if (!set_->Admit(gate_)) {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    Refuse(RejectReason::kOverLimit, absl::ResourceExhaustedError("too many streams on this worker"));
    return;
  }
  StartRead(&message_);
}

void GrpcReceiveCall::OnReadDone(bool ok) noexcept {
  State state;
  {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    if (finish_wanted_) return;
    if (!ok) {
      const bool cut_off = in_the_middle_;
      if (cut_off) set_->rejects.Add(RejectReason::kTruncated);
      NotifyClosed(absl::UnavailableError(cut_off ? "the sender went away in the middle of a frame"
                                                  : "the sender closed the stream"));
      FinishWith(context_->IsCancelled() ? absl::CancelledError("cancelled by the sender") : absl::OkStatus());
      return;
    }
    state = state_;
    last_heard_ = set_->options.loop->Now();
  }
  if (state == State::kHello) {
    HandleHello();
    return;
  }
  // Without the lock: this reaction is the only reader, and the call cannot go while it runs.
  const FrameAssembler::Outcome outcome = HandleFrame();
  std::lock_guard<std::mutex> lock(gate_->mutex);
  AfterFrame(outcome);
}

void GrpcReceiveCall::HandleHello() {
  Frame first;
  bool good = message_.Length() <= kMaxFrameHeadBytes;
  if (good) {
    grpc::ProtoBufferReader reader(&message_);
    good =
        reader.status().ok() && first.ParseFromZeroCopyStream(&reader) && first.has_hello() && first.payload().empty();
  }
  if (!good) {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    Refuse(RejectReason::kMalformed, absl::InvalidArgumentError("the first message of a stream must be a Hello"));
    return;
  }
  {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    if (finish_wanted_) return;
    state_ = State::kWaiting;
  }
  std::optional<Refusal> refusal;
  std::shared_ptr<GrpcReceiver> receiver = set_->Match(gate_, first.hello(), &refusal);
  std::lock_guard<std::mutex> lock(gate_->mutex);
  if (refusal) {
    Refuse(refusal->reason, refusal->status);
  } else if (receiver != nullptr) {
    Open(std::move(receiver));
  }
}

void GrpcReceiveCall::Open(std::shared_ptr<GrpcReceiver> receiver) {
  receiver_ = std::move(receiver);
  if (finish_wanted_) {  // cancelled meanwhile: the owner learns it as the end of its stream
    NotifyClosed(absl::UnavailableError("the sender went away"));
    return;
  }
  state_ = State::kOpen;
  set_->options.loop->Post([set = set_, receiver = receiver_, peer = peer_] {
    if (receiver->closed || set->Stopping()) return;
    receiver->socket = std::make_unique<SocketBytes>(peer);
    if (receiver->callbacks.on_open) receiver->callbacks.on_open();
  });
  answer_accepted_ = true;
  Acknowledge();
  StartRead(&message_);
}

FrameAssembler::Outcome GrpcReceiveCall::HandleFrame() {
  const auto source = [this]() -> std::unique_ptr<google::protobuf::io::ZeroCopyInputStream> {
    return std::make_unique<grpc::ProtoBufferReader>(&message_);
  };
  return receiver_->assembler.Accept(source, message_.Length());
}

void GrpcReceiveCall::AfterFrame(FrameAssembler::Outcome outcome) {
  const FrameAssembler& assembler = receiver_->assembler;
  if (finish_wanted_) {
    // Cancelled while this message was being read, so OnCancel could not know that it opened a frame.
    if (cancelled_ && !in_the_middle_ && assembler.in_the_middle()) set_->rejects.Add(RejectReason::kTruncated);
    return;
  }
  in_the_middle_ = assembler.in_the_middle();
  switch (outcome) {
    case FrameAssembler::Outcome::kRefused:
      Refuse(assembler.reason(), assembler.status());
      return;
    case FrameAssembler::Outcome::kPoolFull:
      message_waits_ = true;
      set_->options.loop->PostAfter(kMemoryRetry, [gate = gate_] {
        std::lock_guard<std::mutex> lock(gate->mutex);
        if (gate->call != nullptr) gate->call->RetryMessage();
      });
      return;
    case FrameAssembler::Outcome::kDropped:
      set_->rejects.Add(assembler.reason());
      break;
    case FrameAssembler::Outcome::kComplete:
      receiver_->next_sequence.store(assembler.next_sequence());
      if (!Deliver()) return;
      if (++frames_since_ack_ >= kFramesPerAck) Acknowledge();
      break;
    case FrameAssembler::Outcome::kStored:
      break;
  }
  ReadMore();
}

// False: refused.
bool GrpcReceiveCall::Deliver() {
  const Frame& header = receiver_->assembler.header();
  LinkFrame frame;
  frame.sequence = header.sequence();
  frame.kind = static_cast<FrameKind>(header.kind());
  frame.n = header.n();
  frame.evaluation = header.evaluation();
  frame.nonfinite = (header.flags() & kNonfiniteFlag) != 0;
  if (frame.kind == FrameKind::kPiece) {
    frame.piece = {header.n(),
                   header.evaluation(),
                   header.piece().shard(),
                   header.epoch(),
                   static_cast<PiecePhase>(header.piece().phase()),
                   header.piece().chunk(),
                   header.piece().first()};
  }
  std::shared_ptr<HostBuffer> payload = receiver_->assembler.TakePayload();
  const size_t bytes = payload == nullptr ? 0 : payload->size();
  if (payload != nullptr && IsTensorKind(frame.kind)) {
    const uint32_t limit = receiver_->limits.max_frames_held;
    if (limit > 0 && receiver_->held->load() >= limit) {
      Refuse(RejectReason::kWindowExceeded,
             absl::ResourceExhaustedError(absl::StrCat("more frames than the window allows: limit=", limit)));
      return false;
    }
    receiver_->held->fetch_add(1);
    const HostBuffer* const memory = payload.get();
    frame.payload =
        BufferRef(memory, [payload = std::move(payload), held = receiver_->held](const HostBuffer*) mutable {
          payload.reset();
          held->fetch_sub(1);
        });
  } else if (payload != nullptr && frame.kind == FrameKind::kPiece) {
    receiver_->held->fetch_add(1);
    const HostBuffer* const memory = payload.get();
    frame.payload = BufferRef(memory, [payload = std::move(payload), held = receiver_->held, set = set_,
                                       gate = gate_](const HostBuffer*) mutable {
      payload.reset();
      held->fetch_sub(1);
      set->options.loop->Post([gate] {
        std::lock_guard<std::mutex> lock(gate->mutex);
        if (gate->call != nullptr) gate->call->ResumeReading();
      });
    });
  } else {
    frame.payload = std::move(payload);
  }
  receiver_->frames.fetch_add(1);
  receiver_->payload_bytes.fetch_add(bytes);
  receiver_->undelivered.fetch_add(1);
  set_->options.loop->Post([set = set_, receiver = receiver_, gate = gate_, frame = std::move(frame)]() mutable {
    receiver->undelivered.fetch_sub(1);
    {
      std::lock_guard<std::mutex> lock(gate->mutex);
      if (gate->call != nullptr) gate->call->ResumeReading();
    }
    if (!receiver->closed && !set->Stopping()) receiver->callbacks.on_frame(std::move(frame));
  });
  return true;
}

void GrpcReceiveCall::ReadMore() {
  const bool pieces_wait = receiver_->limits.max_piece_bytes > 0 && receiver_->limits.max_frames_held > 0 &&
                           receiver_->held->load() >= receiver_->limits.max_frames_held;
  if (pieces_wait || receiver_->undelivered.load() >= kMaxUndelivered) {
    reading_paused_ = true;
  } else {
    StartRead(&message_);
  }
}

void GrpcReceiveCall::ResumeReading() {
  if (!reading_paused_ || finish_wanted_) return;
  reading_paused_ = false;
  ReadMore();
}

void GrpcReceiveCall::RetryMessage() {
  if (!message_waits_ || finish_wanted_) return;
  message_waits_ = false;
  last_heard_ = set_->options.loop->Now();  // we keep it waiting, not it us
  AfterFrame(HandleFrame());
}

void GrpcReceiveCall::Acknowledge() {
  if (finish_wanted_ || state_ != State::kOpen) return;
  if (writing_) {
    ack_waits_ = true;
    return;
  }
  LinkControl control;
  control.set_accepted(answer_accepted_);
  control.set_next_sequence(receiver_->next_sequence.load());
  answer_accepted_ = false;
  ack_waits_ = false;
  frames_since_ack_ = 0;
  last_ack_ = set_->options.loop->Now();
  writing_ = true;
  grpc::Slice slice(control.SerializeAsString());
  response_ = grpc::ByteBuffer(&slice, 1);
  StartWrite(&response_);
}

void GrpcReceiveCall::OnWriteDone(bool ok) noexcept {
  std::lock_guard<std::mutex> lock(gate_->mutex);
  writing_ = false;
  if (finish_wanted_) {
    if (!finished_) {
      finished_ = true;
      Finish(ToGrpcStatus(finish_status_));
    }
  } else if (ok && ack_waits_) {
    Acknowledge();
  }
}

void GrpcReceiveCall::Refuse(RejectReason reason, const absl::Status& status) {
  if (finish_wanted_) return;
  set_->rejects.Add(reason);
  NotifyClosed(status);
  FinishWith(status);
}

// A status must not overtake a write that is still with gRPC: then OnWriteDone sends it.
void GrpcReceiveCall::FinishWith(const absl::Status& status) {
  if (finish_wanted_) return;
  finish_wanted_ = true;
  finish_status_ = status;
  finish_since_ = set_->options.loop->Now();
  if (writing_) return;
  finished_ = true;
  Finish(ToGrpcStatus(status));
}

void GrpcReceiveCall::NotifyClosed(const absl::Status& status) {
  if (receiver_ == nullptr || closed_notified_) return;
  closed_notified_ = true;
  set_->options.loop->Post([set = set_, receiver = receiver_, status] {
    if (receiver->closed || set->Stopping()) return;
    receiver->closed = true;
    if (receiver->socket != nullptr) receiver->socket->Sample();
    if (receiver->callbacks.on_closed) {
      receiver->callbacks.on_closed(
          absl::Status(status.code(), absl::StrCat(DescribeStream(receiver->identity), ": ", status.message())));
    }
  });
}

void GrpcReceiveCall::Tick(MonoTime now, bool we_slept) {
  if (finish_wanted_) {
    if (!finished_ && now - finish_since_ > kFinishAtMost) context_->TryCancel();
    return;
  }
  if (we_slept) opened_ = last_heard_ = now;
  if (state_ != State::kOpen) {
    if (now - opened_ > set_->options.hello_wait) {
      Refuse(RejectReason::kRun, absl::UnavailableError("nobody here waits for this stream"));
    }
    return;
  }
  // While reading is paused by us, silence is our doing.
  if (reading_paused_ || message_waits_) last_heard_ = now;
  if (now - last_heard_ > set_->options.silence) {
    Refuse(RejectReason::kSilent,
           absl::UnavailableError(absl::StrCat("the sender has been silent for ",
                                               std::chrono::duration_cast<seconds>(now - last_heard_).count(), " s")));
    context_->TryCancel();
    return;
  }
  if (now - last_ack_ >= kAckAfter) Acknowledge();
}

void GrpcReceiveCall::OnCancel() noexcept {
  std::lock_guard<std::mutex> lock(gate_->mutex);
  if (finish_wanted_) return;
  cancelled_ = true;
  if (in_the_middle_) set_->rejects.Add(RejectReason::kTruncated);
  NotifyClosed(absl::UnavailableError("the sender went away"));
  FinishWith(absl::CancelledError("cancelled by the sender"));
}

void GrpcReceiveCall::OnDone() noexcept {
  {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    gate_->call = nullptr;
    NotifyClosed(absl::UnavailableError("the stream ended"));
  }
  set_->Forget(gate_);
  delete this;
}

}  // namespace stagecoach
