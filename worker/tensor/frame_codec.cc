#include "worker/tensor/frame_codec.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::ZeroCopyInputStream;

constexpr uint32_t kVarintWireType = 0;
constexpr uint32_t kPayloadTag = (Frame::kPayloadFieldNumber << 3) | 2;

constexpr uint32_t kPieceTag = (Frame::kPieceFieldNumber << 3) | 2;
constexpr uint32_t kMaxPieceHeaderBytes = 64;  // four varints take 34

absl::Status Malformed() { return absl::InvalidArgumentError("malformed frame: it does not parse"); }

// False: not a field of the fast path. Truncation to the field's width is what protobuf's parser does too.
bool SetVarintField(uint32_t number, uint64_t value, Frame* header) {
  switch (number) {
    case Frame::kSequenceFieldNumber:
      header->set_sequence(value);
      return true;
    case Frame::kKindFieldNumber:
      header->set_kind(static_cast<FrameKindCode>(static_cast<int32_t>(value)));
      return true;
    case Frame::kNFieldNumber:
      header->set_n(value);
      return true;
    case Frame::kEvaluationFieldNumber:
      header->set_evaluation(static_cast<uint32_t>(value));
      return true;
    case Frame::kEpochFieldNumber:
      header->set_epoch(value);
      return true;
    case Frame::kIncarnationFieldNumber:
      header->set_incarnation(value);
      return true;
    case Frame::kFlagsFieldNumber:
      header->set_flags(static_cast<uint32_t>(value));
      return true;
    case Frame::kBasisVersionFieldNumber:
      header->set_basis_version(static_cast<uint32_t>(value));
      return true;
    case Frame::kOffsetFieldNumber:
      header->set_offset(value);
      return true;
    case Frame::kTotalFieldNumber:
      header->set_total(value);
      return true;
    case Frame::kCrc32CFieldNumber:
      header->set_crc32c(static_cast<uint32_t>(value));
      return true;
    default:
      return false;
  }
}

bool ReadPiece(CodedInputStream* input, Frame* header) {
  uint32_t size = 0;
  if (!input->ReadVarint32(&size) || size > kMaxPieceHeaderBytes) return false;
  const int end = input->CurrentPosition() + static_cast<int>(size);
  const CodedInputStream::Limit limit = input->PushLimit(static_cast<int>(size));
  // A stream that ends inside of the field counts as consumed too, so compare the position.
  const bool good = header->mutable_piece()->MergeFromCodedStream(input) && input->ConsumedEntireMessage() &&
                    input->CurrentPosition() == end;
  input->PopLimit(limit);
  return good;
}

// Any valid encoding: unknown fields, another order, repeated fields, a Hello.
absl::Status DecodeByProtobuf(MessageSource source, PlacePayload place, Frame* header, size_t* payload_bytes) {
  header->Clear();
  const std::unique_ptr<ZeroCopyInputStream> stream = source();
  if (!header->ParseFromZeroCopyStream(stream.get())) return Malformed();
  const std::unique_ptr<std::string> payload(header->release_payload());
  *payload_bytes = payload == nullptr ? 0 : payload->size();
  ASSIGN_OR_RETURN(uint8_t* const destination, place(*header, *payload_bytes));
  if (destination != nullptr && *payload_bytes > 0) std::memcpy(destination, payload->data(), *payload_bytes);
  return absl::OkStatus();
}

enum class FastPath { kDone, kUnknown };

// The layout that our own sender produces: rising field numbers, varints, payload last.
absl::StatusOr<FastPath> DecodeFast(ZeroCopyInputStream* stream, size_t message_bytes, PlacePayload place,
                                    Frame* header, size_t* payload_bytes) {
  CodedInputStream input(stream);
  uint32_t last_number = 0;
  *payload_bytes = 0;
  while (static_cast<size_t>(input.CurrentPosition()) < message_bytes) {
    const uint32_t tag = input.ReadTag();
    const uint32_t number = tag >> 3;
    if (number <= last_number) return FastPath::kUnknown;  // repeated, out of order, or no tag at all
    last_number = number;
    if (tag == kPayloadTag) {
      uint32_t size = 0;
      if (!input.ReadVarint32(&size)) return FastPath::kUnknown;
      // Checked before anything is placed: what follows is exactly the payload.
      if (static_cast<size_t>(input.CurrentPosition()) + size != message_bytes) return FastPath::kUnknown;
      *payload_bytes = size;
      ASSIGN_OR_RETURN(uint8_t* const destination, place(*header, size));
      if (destination != nullptr && !input.ReadRaw(destination, static_cast<int>(size))) return Malformed();
      return FastPath::kDone;
    }
    if (tag == kPieceTag) {
      if (!ReadPiece(&input, header)) return FastPath::kUnknown;
      continue;
    }
    uint64_t value = 0;
    if ((tag & 7) != kVarintWireType || !input.ReadVarint64(&value)) return FastPath::kUnknown;
    if (!SetVarintField(number, value, header)) return FastPath::kUnknown;
  }
  RETURN_IF_ERROR(place(*header, 0).status());
  return FastPath::kDone;
}

}  // namespace

std::string EncodeFrameHead(const Frame& header, size_t payload_bytes) {
  std::string head = header.SerializeAsString();
  if (payload_bytes > 0) {
    uint8_t prefix[10];
    uint8_t* end = CodedOutputStream::WriteTagToArray(kPayloadTag, prefix);
    end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(payload_bytes), end);
    head.append(reinterpret_cast<const char*>(prefix), static_cast<size_t>(end - prefix));
  }
  return head;
}

FrameChunks::FrameChunks(Frame header, absl::Span<const uint8_t> payload)
    : header_(std::move(header)), payload_(payload), done_(false) {
  header_.set_total(payload.size());
}

FrameChunks::Chunk FrameChunks::Next() {
  const absl::Span<const uint8_t> part = payload_.subspan(offset_, kMaxChunkBytes);
  header_.set_offset(offset_);
  header_.set_crc32c(Crc32c(part));
  offset_ += part.size();
  done_ = offset_ == payload_.size();
  return {EncodeFrameHead(header_, part.size()), part};
}

absl::Status DecodeFrame(MessageSource source, size_t message_bytes, PlacePayload place, Frame* header,
                         size_t* payload_bytes) {
  header->Clear();
  if (message_bytes > kMaxChunkBytes + kMaxFrameHeadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame message above the limit: bytes=", message_bytes));
  }
  const std::unique_ptr<ZeroCopyInputStream> stream = source();
  ASSIGN_OR_RETURN(const FastPath result, DecodeFast(stream.get(), message_bytes, place, header, payload_bytes));
  if (result == FastPath::kDone) return absl::OkStatus();
  return DecodeByProtobuf(source, place, header, payload_bytes);
}

}  // namespace stagecoach
