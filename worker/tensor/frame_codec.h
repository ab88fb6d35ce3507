// Frame messages (protos/link.proto) without copying their payload twice: the sender serialises the header alone and
// lends the payload's memory; the receiver reads the header, asks where the payload goes, and reads it straight there.
// On the wire it is ordinary protobuf; whatever the fast path does not know is left to protobuf's own parser.
//
// Threading: pure functions and values.
// Errors: INVALID_ARGUMENT for what is not a frame; whatever `place` returns.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protos/link.pb.h"

namespace stagecoach {

constexpr size_t kMaxChunkBytes = size_t{1} << 20;  // about 1 ms at 10 Gbit/s; bounds what a control frame waits for
constexpr size_t kMaxFrameHeadBytes = size_t{8} << 10;  // a header is 64 bytes; a Hello carries three names

// The message without its payload bytes: fields 1-13 of `header`, then tag and length of field 15 (none if 0 bytes).
std::string EncodeFrameHead(const Frame& header, size_t payload_bytes);

// A payload cut into chunks, each with its complete header. An empty payload is one chunk.
class FrameChunks {
 public:
  FrameChunks() = default;
  // `payload` must outlive the chunks.
  FrameChunks(Frame header, absl::Span<const uint8_t> payload);
  struct Chunk {
    std::string head;
    absl::Span<const uint8_t> payload;
  };
  bool done() const { return done_; }
  Chunk Next();

 private:
  Frame header_;
  absl::Span<const uint8_t> payload_;
  size_t offset_ = 0;
  bool done_ = true;
};

// Yields the message from its first byte each time.
using MessageSource = absl::FunctionRef<std::unique_ptr<google::protobuf::io::ZeroCopyInputStream>()>;
// Where the payload of `header` goes: payload_bytes of memory, or null to skip it. Called at most once, before any of
// the payload is read, and also for an empty payload.
using PlacePayload = absl::FunctionRef<absl::StatusOr<uint8_t*>(const Frame& header, size_t payload_bytes)>;

// Reads one message of message_bytes into `header` (without payload). *payload_bytes: how many there were.
absl::Status DecodeFrame(MessageSource source, size_t message_bytes, PlacePayload place, Frame* header,
                         size_t* payload_bytes);

}  // namespace stagecoach
