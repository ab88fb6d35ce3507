#include "common/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr char kTemporaryMark[] = ".tmp-";
// Left free beside the file itself, for the folder entry, the journal and the manifest that follows.
constexpr int64_t kReserveBytes = 1 << 20;
// A neighbour that fails removes an empty folder; whoever just made it makes it again. More than one such neighbour in
// a row means that the disk is full anyway.
constexpr int kFolderAttempts = 3;

int Checked(int result) { return result < 0 ? -errno : result; }

absl::Status SystemError(int negative_errno, absl::string_view what, absl::string_view path) {
  const int code = -negative_errno;
  const std::string message = absl::StrCat(what, " ", path, ": ", strerror(code));
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    return absl::ResourceExhaustedError(absl::StrCat(message, "; free some space or lower checkpoint.keep"));
  }
  if (code == EACCES || code == EPERM || code == EROFS) return absl::PermissionDeniedError(message);
  return absl::InternalError(message);
}

absl::Status WriteAll(FileOperations& files, int file, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const int64_t count = files.Write(file, bytes);
    if (count == -EINTR) continue;
    if (count < 0) return SystemError(static_cast<int>(count), "cannot write", path);
    if (count == 0) return SystemError(-ENOSPC, "cannot write", path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status CheckSpace(FileOperations& files, const std::string& folder, const std::string& name, size_t bytes) {
  const int64_t available = files.FreeBytes(folder);
  if (available < 0) return SystemError(static_cast<int>(available), "cannot measure the free space of", folder);
  if (static_cast<uint64_t>(available) >= bytes + uint64_t{kReserveBytes}) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "disk full: %s needs %.1f MiB and %s has %.1f MiB free; free some space or lower checkpoint.keep", name,
      static_cast<double>(bytes + kReserveBytes) / (1 << 20), folder, static_cast<double>(available) / (1 << 20)));
}

// The order is the point: the rename must not be visible before the bytes are on the disk, and the call must not return
// before the rename is.
absl::Status WriteTemporaryAndRename(FileOperations& files, const std::string& folder, const std::string& name,
                                     int file, const std::string& temporary, absl::string_view bytes) {
  absl::Status status = WriteAll(files, file, bytes, temporary);
  if (status.ok()) {
    if (const int result = files.Sync(file); result < 0) status = SystemError(result, "cannot sync", temporary);
  }
  if (const int result = files.Close(file); result < 0 && status.ok()) {
    status = SystemError(result, "cannot close", temporary);
  }
  RETURN_IF_ERROR(status);
  const std::string path = folder + "/" + name;
  if (const int result = files.Rename(temporary, path); result < 0)
    return SystemError(result, "cannot rename to", path);
  if (const int result = files.SyncFolder(folder); result < 0) return SystemError(result, "cannot sync folder", folder);
  return absl::OkStatus();
}

}  // namespace

int FileOperations::MakeFolder(const std::string& path) { return Checked(mkdir(path.c_str(), 0755)); }

int FileOperations::CreateExclusive(const std::string& path) {
  return Checked(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
}

int64_t FileOperations::Write(int file, absl::string_view bytes) {
  const ssize_t count = write(file, bytes.data(), bytes.size());
  return count < 0 ? -errno : count;
}

int FileOperations::Sync(int file) { return Checked(fsync(file)); }

int FileOperations::Close(int file) { return Checked(close(file)); }

int FileOperations::Rename(const std::string& from, const std::string& to) {
  return Checked(rename(from.c_str(), to.c_str()));
}

int FileOperations::SyncFolder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return -errno;
  const int result = Checked(fsync(folder));
  close(folder);
  return result;
}

int FileOperations::Remove(const std::string& path) { return Checked(remove(path.c_str())); }

int64_t FileOperations::FreeBytes(const std::string& folder) {
  struct statvfs state;
  if (statvfs(folder.c_str(), &state) != 0) return -errno;
  const double bytes = static_cast<double>(state.f_bavail) * static_cast<double>(state.f_frsize);
  if (bytes >= 9e18) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(state.f_bavail * state.f_frsize);
}

FileOperations& SystemFiles() {
  static FileOperations files;
  return files;
}

bool IsPlainFileName(absl::string_view name) {
  if (name.empty() || name.size() > 200 || name[0] == '.') return false;
  for (const char c : name) {
    const bool allowed =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!allowed) return false;
  }
  return true;
}

absl::Status MakeFolders(FileOperations& files, const std::string& folder, bool* created) {
  if (created != nullptr) *created = false;
  int result = files.MakeFolder(folder);
  const std::string parent = std::filesystem::path(folder).parent_path().string();
  if (result == -ENOENT && !parent.empty() && parent != folder) {
    RETURN_IF_ERROR(MakeFolders(files, parent, nullptr));
    result = files.MakeFolder(folder);
  }
  if (result == -EEXIST) return absl::OkStatus();
  if (result < 0) return SystemError(result, "cannot create folder", folder);
  if (created != nullptr) *created = true;
  if (const int synced = files.SyncFolder(parent.empty() ? "." : parent); synced < 0) {
    return SystemError(synced, "cannot sync folder", parent);
  }
  return absl::OkStatus();
}

absl::Status WriteDurably(FileOperations& files, const std::string& folder, const std::string& name,
                          absl::string_view bytes) {
  if (!IsPlainFileName(name)) {
    return absl::InvalidArgumentError(absl::StrCat("not a plain file name: '", name.substr(0, 200), "'"));
  }
  static std::atomic<uint64_t> counter{0};
  for (int attempt = 1;; ++attempt) {
    bool created = false;
    RETURN_IF_ERROR(MakeFolders(files, folder, &created));
    absl::Status status = CheckSpace(files, folder, name, bytes.size());
    const std::string temporary = absl::StrCat(folder, "/.", name, kTemporaryMark, getpid(), "-", counter++);
    if (status.ok()) {
      const int file = files.CreateExclusive(temporary);
      if (file == -ENOENT && attempt < kFolderAttempts) continue;
      if (file < 0) {
        status = SystemError(file, "cannot create", temporary);
      } else {
        status = WriteTemporaryAndRename(files, folder, name, file, temporary, bytes);
        if (!status.ok()) files.Remove(temporary);
      }
    }
    if (!status.ok() && created) files.Remove(folder);  // fails, as it should, if a neighbour has written into it
    return status;
  }
}

void RemoveAbandonedFiles(FileOperations& files, const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, ".") && absl::StrContains(name, kTemporaryMark)) files.Remove(entry.path().string());
  }
}

absl::Status ReadWholeFile(const std::string& path, uint64_t cap, std::string* bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    const std::string message = absl::StrCat("cannot open ", path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::DataLossError(message);
  }
  struct stat state;
  absl::Status status;
  if (fstat(file, &state) != 0 || !S_ISREG(state.st_mode)) {
    status = absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  } else if (static_cast<uint64_t>(state.st_size) > cap) {
    status = absl::DataLossError(absl::StrCat(path, " has ", state.st_size, " bytes, more than the limit of ", cap));
  }
  if (status.ok()) {
    bytes->resize(static_cast<size_t>(state.st_size));
    size_t filled = 0;
    while (filled < bytes->size()) {
      const ssize_t count = read(file, bytes->data() + filled, bytes->size() - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        status = absl::DataLossError(absl::StrCat("cannot read ", path, ": ", count < 0 ? strerror(errno) : "shrank"));
        break;
      }
      filled += static_cast<size_t>(count);
    }
  }
  close(file);
  return status;
}

}  // namespace stagecoach
