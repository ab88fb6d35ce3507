// One file of token ids on disk, mapped into memory: an llm.c file (header of 256 int32: magic 20240520, version 1,
// token count; then uint16) or a nanoGPT file (uint16 without a header), told apart by their first bytes. Little
// endian.
//
// Threading: const after Open. Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT with the file and what is wrong.
// Ownership: a MappedTokens owns its mapping.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace stagecoach {

constexpr int32_t kTokenFileMagic = 20240520;
constexpr int32_t kTokenFileVersion = 1;
constexpr size_t kTokenFileHeaderBytes = 256 * sizeof(int32_t);

enum class TokenFileFormat { kLlmC, kRaw };

class MappedTokens {
 public:
  // require_header: only the llm.c format will do (the shards of a prepared folder).
  static absl::StatusOr<MappedTokens> Open(const std::string& path, bool require_header);
  MappedTokens(MappedTokens&& other) noexcept;
  MappedTokens& operator=(MappedTokens&& other) noexcept;
  ~MappedTokens();

  TokenFileFormat format() const { return format_; }
  // Valid as long as this object. Both formats start at an even offset of the mapping.
  absl::Span<const uint16_t> tokens() const { return tokens_; }

 private:
  MappedTokens() = default;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  TokenFileFormat format_ = TokenFileFormat::kRaw;
  absl::Span<const uint16_t> tokens_;
};

// The header of an llm.c file of `tokens` ids.
std::string TokenFileHeader(uint32_t tokens);

// Valid UTF-8 (a character may be cut at the end) without control characters other than white space.
bool LooksLikeText(absl::Span<const char> bytes);

}  // namespace stagecoach
