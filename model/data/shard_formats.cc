#include "model/data/shard_formats.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little endian and are read in place");

constexpr int32_t kWideTokenMagic = 20240801;  // llm.c's files of 32-bit ids (Llama 3)
constexpr size_t kSampleBytes = 64 << 10;      // enough to tell text from token ids, where every second byte is often 0

int32_t HeaderField(const char* file, int index) {
  int32_t field;
  std::memcpy(&field, file + sizeof(field) * static_cast<size_t>(index), sizeof(field));
  return field;
}

absl::Status Refuse(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status CheckHeader(const std::string& path, const char* bytes, size_t size) {
  if (HeaderField(bytes, 1) != kTokenFileVersion) {
    return Refuse(path, absl::StrCat("llm.c token file of version ", HeaderField(bytes, 1), "; version ",
                                     kTokenFileVersion, " (16-bit ids) is supported"));
  }
  const int32_t count = HeaderField(bytes, 2);
  const uint64_t found = (size - kTokenFileHeaderBytes) / sizeof(uint16_t);
  if (count < 0 || size != kTokenFileHeaderBytes + sizeof(uint16_t) * static_cast<uint64_t>(count)) {
    return Refuse(
        path, absl::StrCat(static_cast<uint64_t>(std::max(count, 0)) > found ? "truncated" : "wrong length",
                           ": its header says ", count, " tokens and ", found, " follow; copy or prepare it again"));
  }
  if (count == 0) return Refuse(path, "it holds no tokens");
  return absl::OkStatus();
}

// Says which format the bytes are, or what is wrong with them. The most telling mistakes first.
absl::StatusOr<TokenFileFormat> Recognise(const std::string& path, const char* bytes, size_t size,
                                          bool require_header) {
  if (size == 0) return Refuse(path, "the file is empty");
  const bool has_header = size >= kTokenFileHeaderBytes;
  if (has_header && HeaderField(bytes, 0) == kTokenFileMagic) {
    RETURN_IF_ERROR(CheckHeader(path, bytes, size));
    return TokenFileFormat::kLlmC;
  }
  if (size >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b') {
    return Refuse(
        path, "this is a compressed file, not tokens; run `stagecoach-model prepare` on it and train on the result");
  }
  if (LooksLikeText({bytes, std::min(size, kSampleBytes)})) {
    return Refuse(path, "this is text, not tokens; run `stagecoach-model prepare` on it and train on the result");
  }
  if (size >= sizeof(int32_t) && HeaderField(bytes, 0) == kTokenFileMagic) {
    return Refuse(path, absl::StrCat("truncated: ", size, " bytes are less than the header of an llm.c token file"));
  }
  if (has_header && HeaderField(bytes, 0) == kWideTokenMagic) {
    return Refuse(path,
                  "llm.c token file of 32-bit ids (magic 20240801); only 16-bit ids (magic 20240520) are supported");
  }
  const bool header_shape = has_header && HeaderField(bytes, 1) == kTokenFileVersion && HeaderField(bytes, 2) >= 0 &&
                            size == kTokenFileHeaderBytes + 2 * static_cast<size_t>(HeaderField(bytes, 2));
  if (require_header || header_shape) {
    return Refuse(path, absl::StrCat("wrong magic number ", size >= 4 ? HeaderField(bytes, 0) : 0,
                                     "; an llm.c token file starts with ", kTokenFileMagic));
  }
  if (size % sizeof(uint16_t) != 0) {
    return Refuse(path,
                  absl::StrCat("odd size of ", size, " bytes: a nanoGPT file holds 16-bit ids; it may be truncated"));
  }
  return TokenFileFormat::kRaw;
}

}  // namespace

absl::StatusOr<MappedTokens> MappedTokens::Open(const std::string& path, bool require_header) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const std::string message = absl::StrCat("cannot open ", path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }
  struct stat state;
  if (fstat(file, &state) != 0 || !S_ISREG(state.st_mode)) {
    close(file);
    return Refuse(path, "not a regular file");
  }
  MappedTokens result;
  result.mapped_bytes_ = static_cast<size_t>(state.st_size);
  if (result.mapped_bytes_ > 0) {
    void* mapping = mmap(nullptr, result.mapped_bytes_, PROT_READ, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) {
      const int code = errno;
      close(file);
      return absl::InternalError(absl::StrCat("cannot map ", path, ": ", strerror(code)));
    }
    result.mapping_ = mapping;
  }
  close(file);
  const char* bytes = static_cast<const char*>(result.mapping_);
  ASSIGN_OR_RETURN(result.format_, Recognise(path, bytes, result.mapped_bytes_, require_header));
  const size_t skipped = result.format_ == TokenFileFormat::kLlmC ? kTokenFileHeaderBytes : 0;
  result.tokens_ = {reinterpret_cast<const uint16_t*>(bytes + skipped),
                    (result.mapped_bytes_ - skipped) / sizeof(uint16_t)};
  return result;
}

MappedTokens::MappedTokens(MappedTokens&& other) noexcept { *this = std::move(other); }

MappedTokens& MappedTokens::operator=(MappedTokens&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(format_, other.format_);
  std::swap(tokens_, other.tokens_);
  return *this;
}

MappedTokens::~MappedTokens() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

std::string TokenFileHeader(uint32_t tokens) {
  const int32_t fields[3] = {kTokenFileMagic, kTokenFileVersion, static_cast<int32_t>(tokens)};
  std::string header(kTokenFileHeaderBytes, '\0');
  std::memcpy(header.data(), fields, sizeof(fields));
  return header;
}

bool LooksLikeText(absl::Span<const char> bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto first = static_cast<uint8_t>(bytes[i]);
    const bool white = first == '\t' || first == '\n' || first == '\r' || first == '\f';
    if ((first < 0x20 && !white) || first == 0x7f || (first >= 0x80 && first < 0xc2) || first > 0xf4) return false;
    const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    for (size_t k = 1; k < length && i + k < bytes.size(); ++k) {
      if ((static_cast<uint8_t>(bytes[i + k]) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

}  // namespace stagecoach
