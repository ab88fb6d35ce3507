#include "worker/link/grpc_frame_call.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include "common/grpc/grpc_status.h"

namespace stagecoach {
namespace {

// Below this a copy is cheaper than a reference counted slice.
constexpr size_t kCopyBelowBytes = 512;

void ReleaseBuffer(void* owner) { delete static_cast<BufferRef*>(owner); }

}  // namespace

void GrpcFrameCall::Begin(grpc::GenericStub* stub, const Frame& hello) {
  // A receiver that starts a moment later is normal; the stream's owner bounds the wait.
  context_.set_wait_for_ready(true);
  stub->PrepareBidiStreamingCall(&context_, "/stagecoach.PeerLink/Frames", {}, this);
  grpc::Slice slice(hello.SerializeAsString());
  request_ = grpc::ByteBuffer(&slice, 1);
  StartRead(&response_);
  StartWrite(&request_);
  AddHold();  // for writes from outside of reactions; removed when the reads have ended
  StartCall();
}

void GrpcFrameCall::Write(const FrameChunks::Chunk& chunk, const BufferRef& owner, bool more_follows) {
  if (chunk.payload.size() < kCopyBelowBytes) {
    std::string whole = chunk.head;
    whole.append(reinterpret_cast<const char*>(chunk.payload.data()), chunk.payload.size());
    grpc::Slice slice(whole);
    request_ = grpc::ByteBuffer(&slice, 1);
  } else {
    // The slice's destroy function releases the memory; a finished write says only that the next one may start.
    grpc::Slice slices[2] = {grpc::Slice(chunk.head),
                             grpc::Slice(const_cast<uint8_t*>(chunk.payload.data()), chunk.payload.size(),
                                         &ReleaseBuffer, new BufferRef(owner))};
    request_ = grpc::ByteBuffer(slices, 2);
  }
  grpc::WriteOptions options;
  if (more_follows) options.set_buffer_hint();
  StartWrite(&request_, options);
}

void GrpcFrameCall::OnReadDone(bool ok) noexcept {
  LinkControl control;
  if (ok) {
    grpc::ProtoBufferReader reader(&response_);
    ok = reader.status().ok() && control.ParseFromZeroCopyStream(&reader);
    if (!ok) context_.TryCancel();
  }
  if (!ok) {
    events_->OnReadsEnded();
    RemoveHold();
    return;
  }
  events_->OnControl(control, context_.peer());
  StartRead(&response_);
}

void GrpcFrameCall::OnDone(const grpc::Status& status) noexcept {
  GrpcFrameCallEvents* const events = events_;
  const absl::Status result = FromGrpcStatus(status);
  events->OnEnding();
  delete this;
  // Behind the deletion: the stream, and with it the channel that this call used, may go from here on.
  const std::function<void()> ended = events->OnEnded(result);
  ended();
}

}  // namespace stagecoach
