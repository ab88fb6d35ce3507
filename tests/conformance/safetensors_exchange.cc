// safetensors_exchange write FILE: a file with every kind of tensor that checkpoints hold.
// safetensors_exchange read FILE: prints name, dtype, shape and SHA-256 of each tensor, and the metadata.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/str_join.h"
#include "common/checkpoint/safetensors.h"
#include "common/sha256.h"

namespace stagecoach {
namespace {

int Write(const std::string& path) {
  const float floats[6] = {0.0f, -1.5f, 3.25f, 1e-30f, 1e30f, 42.0f};
  const uint64_t words[2] = {1, ~uint64_t{0}};
  std::string f(sizeof(floats), '\0'), w(sizeof(words), '\0');
  std::memcpy(f.data(), floats, sizeof(floats));
  std::memcpy(w.data(), words, sizeof(words));
  const auto bytes = SerializeSafetensors({{"w.0.units.1.attention.q", "F32", {2, 3}, f},
                                           {"counter", "U64", {2}, w},
                                           {"caf\xC3\xA9 \"quoted\"", "U8", {3}, "abc"},
                                           {"empty", "F32", {0, 4}, ""},
                                           {"scalar", "F32", {}, absl::string_view(f).substr(4, 4)}},
                                          {{"step", "12"}, {"nadam_product", "0x1.8p-1"}});
  if (!bytes.ok()) return 1;
  std::ofstream file(path, std::ios::binary);
  file << *bytes;
  return file.flush() ? 0 : 1;
}

int Read(const std::string& path) {
  const auto reader = SafetensorsReader::Open(path);
  if (!reader.ok()) {
    std::cerr << reader.status().message() << "\n";
    return 1;
  }
  for (const auto& [name, tensor] : reader->tensors()) {
    std::cout << name << " " << tensor.dtype << " [" << absl::StrJoin(tensor.shape, ",") << "] "
              << Sha256Hex(tensor.data) << "\n";
  }
  for (const auto& [key, text] : reader->metadata()) std::cout << key << "=" << text << "\n";
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  return std::string(argv[1]) == "write" ? stagecoach::Write(argv[2]) : stagecoach::Read(argv[2]);
}
