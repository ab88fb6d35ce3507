// Reader and writer of the safetensors format: 8-byte little endian header length, JSON header, raw data.
// Refuses overlaps, gaps, wrong products, unknown dtypes, headers above 100 MiB. Never executes anything.
//
// Threading: pure functions; a reader is const after Open. Errors: INVALID_ARGUMENT/DATA_LOSS name the file and tensor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

struct TensorEntry {
  std::string name;
  std::string dtype;  // F32, F64, U64, BF16 ...
  std::vector<int64_t> shape;
  absl::string_view data;  // borrowed: from the caller when writing, from the reader's mapping when reading
};

// Serialises entries (in the given order) and metadata into one string. data sizes must fit dtype and shape.
absl::StatusOr<std::string> SerializeSafetensors(const std::vector<TensorEntry>& entries,
                                                 const std::map<std::string, std::string>& metadata);

class SafetensorsReader {
 public:
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);
  static absl::StatusOr<SafetensorsReader> Parse(std::string bytes, const std::string& name_for_errors);
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::shared_ptr<const std::string> bytes_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace stagecoach
