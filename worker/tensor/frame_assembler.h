// Turns the messages of one stream into whole frames: checks each against what the receiver expects, in the order
// epoch, incarnation, sequence, sizes, checksum, and copies the payload once, into a pooled buffer of the right size.
//
// Threading: one thread at a time.
// Errors: see Outcome; after kRefused the stream must be closed.
// Ownership: shares the pool; a frame's payload is shared with whoever took it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "worker/tensor/frame_codec.h"
#include "worker/tensor/host_buffer.h"
#include "worker/tensor/reject_reason.h"

namespace stagecoach {

struct FrameExpectation {
  uint64_t epoch = 0;
  uint64_t incarnation = 0;      // sender's
  uint64_t next_sequence = 0;    // of the first frame; lower ones are duplicates
  size_t tensor_bytes = 0;       // exact size of ACTIVATION, GRADIENT and EVALUATION payloads
  size_t max_control_bytes = 0;  // most bytes of a NORMS or SCALAR payload
  size_t max_piece_bytes = 0;    // most bytes of a PIECE payload; 0: the stream carries none
};

class FrameAssembler {
 public:
  FrameAssembler(FrameExpectation expectation, std::shared_ptr<HostBufferPool> pool)
      : expectation_(expectation), pool_(std::move(pool)), next_sequence_(expectation.next_sequence) {}

  enum class Outcome {
    kStored,    // a chunk, or a sign of life; more to come
    kComplete,  // header() and TakePayload() are the frame
    kDropped,   // reason() says why; the stream goes on
    kPoolFull,  // nothing was consumed: offer the same message again when memory has come back
    kRefused,   // reason() and status() say why
  };
  Outcome Accept(MessageSource source, size_t message_bytes);

  const Frame& header() const { return header_; }
  std::shared_ptr<HostBuffer> TakePayload() { return std::move(buffer_); }
  RejectReason reason() const { return reason_; }
  const absl::Status& status() const { return status_; }
  uint64_t next_sequence() const { return next_sequence_; }  // first one that is not complete
  bool in_the_middle() const { return in_progress_; }        // of a frame

 private:
  // What to do with the message whose header has been read.
  enum class Verdict { kStore, kDrop, kPoolFull, kRefuse, kTick };
  Verdict Judge(const Frame& header, size_t payload_bytes);
  Verdict JudgeNewFrame(const Frame& header);
  Verdict JudgeNextChunk(const Frame& header, size_t payload_bytes);
  Verdict Drop(RejectReason reason);
  Verdict Refuse(RejectReason reason, absl::Status status);

  const FrameExpectation expectation_;
  const std::shared_ptr<HostBufferPool> pool_;
  uint64_t next_sequence_;
  // The frame in progress.
  bool in_progress_ = false;
  Frame first_header_;
  uint64_t received_ = 0;
  std::shared_ptr<HostBuffer> buffer_;
  // The last message.
  Frame header_;
  RejectReason reason_ = RejectReason::kMalformed;
  absl::Status status_;
};

}  // namespace stagecoach
