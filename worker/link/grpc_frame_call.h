// One attempt of a sending stream: the gRPC call and nothing else. It deletes itself when gRPC is done with it.
//
// Threading: Begin on the loop; Write, Cancel, HalfClose from any thread while the owner's lock says that the call
// lives (see GrpcClientStream); reactions run on gRPC threads and call the events.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "protos/link.pb.h"
#include "worker/tensor/frame_codec.h"
#include "worker/tensor/host_buffer.h"

namespace stagecoach {

// What a call tells its stream. OnEnded is the last one; the call is deleted behind it.
class GrpcFrameCallEvents {
 public:
  virtual ~GrpcFrameCallEvents() = default;
  virtual void OnWritten(bool ok) = 0;
  virtual void OnControl(const LinkControl& control, const std::string& peer) = 0;
  virtual void OnReadsEnded() = 0;                                        // no Write, HalfClose may start from now on
  virtual void OnEnding() = 0;                                            // the pointer to the call is dead from now on
  virtual std::function<void()> OnEnded(const absl::Status& status) = 0;  // result runs when the call is deleted
};

class GrpcFrameCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit GrpcFrameCall(GrpcFrameCallEvents* events) : events_(events) {}
  void Begin(grpc::GenericStub* stub, const Frame& hello);
  // One outstanding at a time. `owner` keeps the payload's memory until gRPC has let go of it.
  void Write(const FrameChunks::Chunk& chunk, const BufferRef& owner, bool more_follows);
  void HalfClose() { StartWritesDone(); }
  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) noexcept override { events_->OnWritten(ok); }
  void OnReadDone(bool ok) noexcept override;
  void OnDone(const grpc::Status& status) noexcept override;

 private:
  GrpcFrameCallEvents* const events_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
};

}  // namespace stagecoach
