// SHA-256 in hex of bytes, of pieces one after the other, or of a file.
//
// Threading: values; one object is used by one thread. Errors: NOT_FOUND/DATA_LOSS name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(absl::string_view bytes);
  // 64 lower-case hex digits. The object is used up afterwards.
  std::string FinishHex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string Sha256Hex(absl::string_view bytes);

// Reads the file in pieces, without following a symbolic link at its end.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace stagecoach
