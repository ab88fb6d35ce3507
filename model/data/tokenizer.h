// Text to token ids and back: bytes (id = byte), or a SentencePiece model. SentencePiece works line by line and drops
// the line ends; each is stored as the model's end-of-sentence id, where it has one.
//
// SentencePiece runs as the Debian programs spm_encode and spm_decode: its library exports a copy of protobuf that must
// not meet the one of gRPC in a worker.
//
// Threading: one thread. Errors: FAILED_PRECONDITION (programs missing), INVALID_ARGUMENT (model file).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

class Tokenizer {
 public:
  using Sink = std::function<absl::Status(absl::Span<const uint16_t>)>;

  // name: "bytes", or the path of a SentencePiece .model file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const std::string& name);
  virtual ~Tokenizer() = default;

  virtual uint32_t vocabulary() const = 0;
  virtual bool is_bytes() const = 0;
  // A text is given in any number of pieces and then finished; ids arrive in order, not necessarily at once.
  virtual absl::Status Encode(absl::string_view piece, const Sink& sink) = 0;
  virtual absl::Status FinishText(const Sink& sink) = 0;
  // Bytes that are no valid UTF-8 become U+FFFD.
  virtual absl::StatusOr<std::string> Decode(absl::Span<const int64_t> ids) = 0;
};

// Each maximal invalid sequence becomes one U+FFFD, as the Unicode standard recommends.
std::string ReplaceInvalidUtf8(absl::string_view bytes);

}  // namespace stagecoach
