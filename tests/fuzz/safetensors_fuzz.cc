// Mutates valid files for a few seconds and asserts what must hold of every answer of the reader. STAGECOACH_SEED and
// STAGECOACH_FUZZ_SECONDS choose the seed and the length.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

#include "common/checkpoint/safetensors.h"

namespace stagecoach {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string ASeedFile(std::mt19937_64& random) {
  std::vector<std::string> data(random() % 5);
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < data.size(); ++i) {
    const auto rows = static_cast<int64_t>(random() % 4), columns = static_cast<int64_t>(random() % 5);
    data[i].assign(static_cast<size_t>(rows * columns) * 4, static_cast<char>('a' + i));
    entries.push_back({"w.0.units." + std::to_string(i), "F32", {rows, columns}, data[i]});
  }
  return *SerializeSafetensors(entries, {{"step", "7"}});
}

std::string Mutate(std::string bytes, std::mt19937_64& random) {
  static const std::string kPieces[] = {"\"",      "[",         "]",       "{",    "}",   ",",
                                        ":",       "0",         "9",       "-1",   "1e9", "18446744073709551615",
                                        "\"F64\"", "\"dtype\"", "\\u0000", "null", "\xff"};
  for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 5) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 2:
        bytes.erase(at, random() % 9);
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, bytes.substr(bytes.size() - at, random() % 64));
        break;
    }
  }
  return bytes;
}

// Whatever was accepted covers the data once and is what its shape says.
void CheckAccepted(const SafetensorsReader& reader, size_t file_bytes) {
  size_t total = 0;
  for (const auto& [name, tensor] : reader.tensors()) {
    EXPECT_EQ(name, tensor.name);
    uint64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= static_cast<uint64_t>(extent);
    EXPECT_EQ(tensor.data.size() % std::max<uint64_t>(elements, 1), 0u);
    total += tensor.data.size();
    uint8_t folded = 0;
    for (const char c : tensor.data) folded ^= static_cast<uint8_t>(c);  // reads every byte, for the address sanitizer
    volatile uint8_t kept = folded;
    (void)kept;
  }
  EXPECT_LE(total + 8, file_bytes);
}

TEST(SafetensorsFuzz, MutatedFiles_AreReadSafelyOrRefused) {
  const uint64_t seed = FromEnvironment("STAGECOACH_SEED", std::random_device{}());
  std::printf("seed=%lu\n", static_cast<unsigned long>(seed));
  std::mt19937_64 random(seed);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(FromEnvironment("STAGECOACH_FUZZ_SECONDS", 3));
  uint64_t cases = 0, accepted = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::string bytes = Mutate(ASeedFile(random), random);
    const auto reader = SafetensorsReader::Parse(bytes, "fuzz");
    ++cases;
    if (!reader.ok()) continue;
    ++accepted;
    CheckAccepted(*reader, bytes.size());
    if (HasFailure()) FAIL() << "seed " << seed << " case " << cases;
  }
  std::printf("cases=%lu accepted=%lu\n", static_cast<unsigned long>(cases), static_cast<unsigned long>(accepted));
  EXPECT_GT(accepted, 0u);
  EXPECT_LT(accepted, cases);
}

}  // namespace
}  // namespace stagecoach
