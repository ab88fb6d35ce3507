#include "common/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/counter_rng.h"

namespace stagecoach {
namespace {

// Bit by bit, as the definition says.
uint32_t SlowCrc32c(const std::vector<uint8_t>& bytes) {
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

TEST(Crc32c, KnownVector_GivesPublishedValue) {
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32c({reinterpret_cast<const uint8_t*>(digits.data()), digits.size()}), 0xe3069283u);
}

TEST(Crc32c, AnySizeAndAnySplit_EqualsTheDefinition) {
  const CounterRng rng(1, RngPurpose::kTest);
  for (const size_t size : {0, 1, 7, 8, 9, 1023, 3071, 3072, 3073, 10000}) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(rng.Word(i));
    const uint32_t whole = Crc32c(bytes);
    EXPECT_EQ(whole, SlowCrc32c(bytes)) << size;
    const absl::Span<const uint8_t> all = bytes;
    EXPECT_EQ(Crc32c(all.subspan(size / 3), Crc32c(all.subspan(0, size / 3))), whole) << size;
  }
}

}  // namespace
}  // namespace stagecoach
