// Writes a file so that after a crash it is either complete under its name or not there: temporary name in the same
// folder, write, fsync, rename, fsync of the folder.
//
// FileOperations is the one door to the file system of the writing side; tests hand in one that fails or kills the
// process at a chosen call.
//
// Threading: SystemFiles() is stateless and safe from any thread and process; two writers of one name: the last rename
// stays. Errors: INVALID_ARGUMENT: a name that is not a plain file name; RESOURCE_EXHAUSTED: disk full; INTERNAL: what
// the system reports. After an error neither the temporary file nor a folder that the call made is left.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

class FileOperations {
 public:
  virtual ~FileOperations() = default;

  // Each returns 0 or a value >= 0, or -errno.
  virtual int MakeFolder(const std::string& path);           // -EEXIST if it is there
  virtual int CreateExclusive(const std::string& path);      // returns the file descriptor
  virtual int64_t Write(int file, absl::string_view bytes);  // may write less than it was given
  virtual int Sync(int file);
  virtual int Close(int file);
  virtual int Rename(const std::string& from, const std::string& to);
  virtual int SyncFolder(const std::string& path);
  virtual int Remove(const std::string& path);           // a file or an empty folder
  virtual int64_t FreeBytes(const std::string& folder);  // for a user without privileges
};

FileOperations& SystemFiles();

// Letters, digits, '.', '_', '-'; does not start with a dot; at most 200 characters.
bool IsPlainFileName(absl::string_view name);

absl::Status WriteDurably(FileOperations& files, const std::string& folder, const std::string& name,
                          absl::string_view bytes);

// Deletes the temporary files that writers which were killed left in `folder`.
void RemoveAbandonedFiles(FileOperations& files, const std::string& folder);

// Creates `folder` and the folders above it, each one durable. `created` (may be null): whether the last one is new.
absl::Status MakeFolders(FileOperations& files, const std::string& folder, bool* created);

// Reads a whole file of at most `cap` bytes, not through a symbolic link. NOT_FOUND, DATA_LOSS.
absl::Status ReadWholeFile(const std::string& path, uint64_t cap, std::string* bytes);

}  // namespace stagecoach
