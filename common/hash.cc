#include "common/hash.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace stagecoach {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // Castagnoli, bit-reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t ByTable(const uint8_t* data, size_t size, uint32_t crc) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  for (size_t i = 0; i < size; ++i) crc = kTable[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
// crc * x^(8 * bytes) modulo the polynomial, for joining the three lanes: the CRC of `bytes` zero bytes after it.
struct ShiftTable {
  std::array<std::array<uint32_t, 256>, 4> row;
  explicit ShiftTable(size_t bytes) {
    for (uint32_t lane = 0; lane < 4; ++lane) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte << (8 * lane);
        for (size_t i = 0; i < 8 * bytes; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
        row[lane][byte] = crc;
      }
    }
  }
  uint32_t Apply(uint32_t crc) const {
    return row[0][crc & 0xff] ^ row[1][(crc >> 8) & 0xff] ^ row[2][(crc >> 16) & 0xff] ^ row[3][crc >> 24];
  }
};

uint64_t Load(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// The instruction has a latency of three cycles and a throughput of one: three independent lanes keep it busy.
constexpr size_t kLane = 1024;

__attribute__((target("sse4.2"))) uint32_t ByInstruction(const uint8_t* data, size_t size, uint32_t crc) {
  static const ShiftTable kOneLane(kLane);
  while (size >= 3 * kLane) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, Load(data + i));
      b = _mm_crc32_u64(b, Load(data + kLane + i));
      c = _mm_crc32_u64(c, Load(data + 2 * kLane + i));
    }
    crc =
        kOneLane.Apply(kOneLane.Apply(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
    data += 3 * kLane;
    size -= 3 * kLane;
  }
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) wide = _mm_crc32_u64(wide, Load(data));
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) crc = _mm_crc32_u8(crc, *data);
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(absl::Span<const uint8_t> bytes, uint32_t previous) {
  const uint32_t crc = ~previous;
#if defined(__x86_64__)
  static const bool kHasInstruction = __builtin_cpu_supports("sse4.2") != 0;
  if (kHasInstruction) return ~ByInstruction(bytes.data(), bytes.size(), crc);
#endif
  return ~ByTable(bytes.data(), bytes.size(), crc);
}

}  // namespace stagecoach
