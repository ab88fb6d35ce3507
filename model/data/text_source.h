// Finds text files and reads them piece by piece; gzip and dictzip (.gz, .dz) are unpacked on the way.
//
// Threading: pure functions. Errors: NOT_FOUND, INVALID_ARGUMENT (not text), DATA_LOSS (a damaged .gz), with the file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

struct TextFiles {
  std::vector<std::string> files;    // in the order of the inputs; a folder's files sorted by path
  std::vector<std::string> skipped;  // binary files inside folders
};

// inputs: files or folders (searched at any depth; hidden entries and links to folders are left out). Files below
// `excluded` (the output folder) do not count.
absl::StatusOr<TextFiles> FindTextFiles(const std::vector<std::string>& inputs, const std::string& excluded);

// Calls `sink` with pieces of at most 1 MiB; stops at its first error.
absl::Status ReadTextFile(const std::string& path, const std::function<absl::Status(absl::string_view)>& sink);

}  // namespace stagecoach
