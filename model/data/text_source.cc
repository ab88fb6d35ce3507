#include "model/data/text_source.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr unsigned kPieceBytes = 1 << 20;  // bounds what a file of any size takes in memory
constexpr size_t kSampleBytes = 64 << 10;  // a file without a NUL byte in its first 64 KiB counts as text

// A file being unpacked; zlib hands plain files through unchanged.
class Unpacker {
 public:
  explicit Unpacker(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rbe")) {
    if (file_ != nullptr) gzbuffer(file_, 256 << 10);
  }
  ~Unpacker() {
    if (file_ != nullptr) gzclose(file_);
  }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // Fills `piece`; it is empty at the end of the file.
  absl::Status Next(std::string* piece, unsigned bytes) {
    if (file_ == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path_, ": ", strerror(errno)));
    piece->resize(bytes);
    const int count = gzread(file_, piece->data(), bytes);
    int code = Z_OK;
    const char* message = gzerror(file_, &code);
    // A file that ends in the middle of its compressed data reads as a short piece and Z_BUF_ERROR.
    if (count < 0 || code == Z_BUF_ERROR) {
      return absl::DataLossError(
          absl::StrCat(path_, ": cannot be unpacked: ", code == Z_ERRNO ? strerror(errno) : message));
    }
    piece->resize(static_cast<size_t>(count));
    return absl::OkStatus();
  }

 private:
  std::string path_;
  gzFile file_;
};

absl::StatusOr<bool> IsText(const std::string& path) {
  Unpacker file(path);
  std::string sample;
  RETURN_IF_ERROR(file.Next(&sample, kSampleBytes));
  return !absl::StrContains(sample, absl::string_view("\0", 1));
}

bool IsBelow(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

absl::StatusOr<std::vector<std::string>> FilesOfFolder(const std::string& folder,
                                                       const std::filesystem::path& excluded) {
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const bool hidden = absl::StartsWith(entry->path().filename().string(), ".");
    std::error_code ignored;
    if (hidden || IsBelow(std::filesystem::absolute(entry->path(), ignored).lexically_normal(), excluded)) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored)) {
      found.push_back(entry->path().string());
    }
  }
  if (error) return absl::PermissionDeniedError(absl::StrCat("cannot list ", folder, ": ", error.message()));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

absl::StatusOr<TextFiles> FindTextFiles(const std::vector<std::string>& inputs, const std::string& excluded) {
  TextFiles result;
  std::error_code error;
  const auto excluded_path = std::filesystem::absolute(excluded, error).lexically_normal();
  for (const std::string& input : inputs) {
    if (!std::filesystem::exists(input, error))
      return absl::NotFoundError(absl::StrCat("input '", input, "' does not exist"));
    if (!std::filesystem::is_directory(input, error)) {
      ASSIGN_OR_RETURN(const bool text, IsText(input));
      if (!text) return absl::InvalidArgumentError(absl::StrCat(input, ": this is not text (it holds NUL bytes)"));
      result.files.push_back(input);
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> found, FilesOfFolder(input, excluded_path));
    for (const std::string& file : found) {
      ASSIGN_OR_RETURN(const bool text, IsText(file));
      (text ? result.files : result.skipped).push_back(file);
    }
  }
  if (result.files.empty()) return absl::InvalidArgumentError("no text files found in the inputs");
  return result;
}

absl::Status ReadTextFile(const std::string& path, const std::function<absl::Status(absl::string_view)>& sink) {
  Unpacker file(path);
  std::string piece;
  for (;;) {
    RETURN_IF_ERROR(file.Next(&piece, kPieceBytes));
    if (piece.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(sink(piece));
  }
}

}  // namespace stagecoach
