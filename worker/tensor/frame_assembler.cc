#include "worker/tensor/frame_assembler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash.h"

namespace stagecoach {
namespace {

bool IsTensor(FrameKindCode kind) {
  return kind == FRAME_KIND_ACTIVATION || kind == FRAME_KIND_GRADIENT || kind == FRAME_KIND_EVALUATION;
}

bool IsControlWithPayload(FrameKindCode kind) { return kind == FRAME_KIND_NORMS || kind == FRAME_KIND_SCALAR; }

bool IsKnown(FrameKindCode kind) { return kind > FRAME_KIND_UNSPECIFIED && kind <= FRAME_KIND_PIECE; }

bool IsTick(const Frame& header, size_t payload_bytes) {
  return header.kind() == FRAME_KIND_UNSPECIFIED && payload_bytes == 0 && header.total() == 0 && !header.has_hello();
}

}  // namespace

FrameAssembler::Verdict FrameAssembler::Drop(RejectReason reason) {
  reason_ = reason;
  return Verdict::kDrop;
}

FrameAssembler::Verdict FrameAssembler::Refuse(RejectReason reason, absl::Status status) {
  reason_ = reason;
  status_ = std::move(status);
  return Verdict::kRefuse;
}

FrameAssembler::Verdict FrameAssembler::Judge(const Frame& header, size_t payload_bytes) {
  if (IsTick(header, payload_bytes)) return Verdict::kTick;
  if (header.epoch() != expectation_.epoch) return Drop(RejectReason::kEpoch);
  if (header.incarnation() != expectation_.incarnation) return Drop(RejectReason::kIncarnation);
  if (header.sequence() < next_sequence_) return Drop(RejectReason::kDuplicate);
  if (header.sequence() > next_sequence_) {
    return Refuse(RejectReason::kSequenceGap,
                  absl::FailedPreconditionError(absl::StrCat("frames are missing: expected sequence ", next_sequence_,
                                                             ", received ", header.sequence())));
  }
  if (!IsKnown(header.kind()) || header.has_hello()) {
    return Refuse(RejectReason::kMalformed,
                  absl::InvalidArgumentError(absl::StrCat("not a frame of an open stream: kind=", int{header.kind()})));
  }
  if (payload_bytes > kMaxChunkBytes) {
    return Refuse(RejectReason::kOverLimit,
                  absl::InvalidArgumentError(absl::StrCat("chunk above 1 MiB: bytes=", payload_bytes)));
  }
  if (!in_progress_) {
    const Verdict verdict = JudgeNewFrame(header);
    if (verdict != Verdict::kStore) return verdict;
  }
  return JudgeNextChunk(header, payload_bytes);
}

// Sizes are those of the plan: they are compared before anything is allocated.
FrameAssembler::Verdict FrameAssembler::JudgeNewFrame(const Frame& header) {
  const uint64_t total = header.total();
  const bool piece = header.kind() == FRAME_KIND_PIECE;
  if (piece != (expectation_.max_piece_bytes > 0) || piece != header.has_piece()) {
    return Refuse(RejectReason::kMalformed,
                  absl::InvalidArgumentError(absl::StrCat(
                      "pieces and frames of a pipeline travel on streams of their own: kind=", int{header.kind()})));
  }
  if (piece && (total == 0 || total > expectation_.max_piece_bytes)) {
    return Refuse(RejectReason::kOverLimit,
                  absl::InvalidArgumentError(absl::StrCat("piece of a size that is not allowed: bytes=", total,
                                                          " limit=", expectation_.max_piece_bytes)));
  }
  if (IsTensor(header.kind()) ? total != expectation_.tensor_bytes
                              : !IsControlWithPayload(header.kind()) && !piece && total != 0) {
    return Refuse(RejectReason::kSize, absl::InvalidArgumentError(absl::StrCat(
                                           "frame of an unexpected size: kind=", int{header.kind()}, " bytes=", total,
                                           " expected=", IsTensor(header.kind()) ? expectation_.tensor_bytes : 0)));
  }
  if (IsControlWithPayload(header.kind()) && total > expectation_.max_control_bytes) {
    return Refuse(RejectReason::kOverLimit, absl::InvalidArgumentError(absl::StrCat(
                                                "control frame above the limit: kind=", int{header.kind()},
                                                " bytes=", total, " limit=", expectation_.max_control_bytes)));
  }
  if (header.offset() != 0) {
    return Refuse(RejectReason::kSequenceGap, absl::FailedPreconditionError(absl::StrCat(
                                                  "a frame starts in its middle: offset=", header.offset())));
  }
  if (total > 0) {
    auto allocated = pool_->Allocate(total);
    if (!allocated.ok()) return Verdict::kPoolFull;
    buffer_ = *std::move(allocated);
  } else {
    buffer_ = nullptr;
  }
  first_header_ = header;
  received_ = 0;
  in_progress_ = true;
  return Verdict::kStore;
}

FrameAssembler::Verdict FrameAssembler::JudgeNextChunk(const Frame& header, size_t payload_bytes) {
  if (header.kind() != first_header_.kind() || header.n() != first_header_.n() ||
      header.evaluation() != first_header_.evaluation() || header.flags() != first_header_.flags() ||
      header.total() != first_header_.total()) {
    return Refuse(RejectReason::kMalformed, absl::InvalidArgumentError(absl::StrCat(
                                                "chunks of one frame disagree: sequence=", header.sequence())));
  }
  if (header.offset() < received_) return Drop(RejectReason::kDuplicate);
  if (header.offset() > received_) {
    return Refuse(RejectReason::kSequenceGap,
                  absl::FailedPreconditionError(
                      absl::StrCat("a chunk is missing: expected offset ", received_, ", received ", header.offset())));
  }
  if (payload_bytes > header.total() - received_ || (payload_bytes == 0 && header.total() > 0)) {
    return Refuse(RejectReason::kSize,
                  absl::InvalidArgumentError(absl::StrCat("chunk does not fit into its frame: offset=", received_,
                                                          " bytes=", payload_bytes, " total=", header.total())));
  }
  return Verdict::kStore;
}

FrameAssembler::Outcome FrameAssembler::Accept(MessageSource source, size_t message_bytes) {
  Verdict verdict = Verdict::kRefuse;
  uint8_t* destination = nullptr;
  size_t payload_bytes = 0;
  bool judged = false;
  const auto place = [&](const Frame& header, size_t bytes) -> absl::StatusOr<uint8_t*> {
    judged = true;
    verdict = Judge(header, bytes);
    if (verdict == Verdict::kPoolFull) return absl::ResourceExhaustedError("host buffer pool is full");
    if (verdict == Verdict::kRefuse) return status_;
    if (verdict == Verdict::kStore && bytes > 0) destination = buffer_->bytes().data() + received_;
    return destination;
  };
  const absl::Status decoded = DecodeFrame(source, message_bytes, place, &header_, &payload_bytes);
  if (!decoded.ok() && (!judged || (verdict != Verdict::kPoolFull && verdict != Verdict::kRefuse))) {
    reason_ = message_bytes > kMaxChunkBytes + kMaxFrameHeadBytes ? RejectReason::kOverLimit : RejectReason::kMalformed;
    status_ = decoded;
    return Outcome::kRefused;
  }
  switch (verdict) {
    case Verdict::kTick:
      return Outcome::kStored;
    case Verdict::kDrop:
      return Outcome::kDropped;
    case Verdict::kPoolFull:
      return Outcome::kPoolFull;
    case Verdict::kRefuse:
      return Outcome::kRefused;
    case Verdict::kStore:
      break;
  }
  // After the copy, while the bytes are in the cache.
  if (Crc32c(absl::Span<const uint8_t>(destination, payload_bytes)) != header_.crc32c()) {
    Refuse(RejectReason::kChecksum,
           absl::DataLossError(absl::StrCat("checksum of a chunk differs: sequence=", header_.sequence(),
                                            " offset=", header_.offset())));
    return Outcome::kRefused;
  }
  received_ += payload_bytes;
  if (received_ < header_.total()) return Outcome::kStored;
  in_progress_ = false;
  ++next_sequence_;
  return Outcome::kComplete;
}

}  // namespace stagecoach
