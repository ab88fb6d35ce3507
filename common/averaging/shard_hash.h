// SHA-256 of a shard's weights that is computed while they arrive, in whatever order: blocks of 65,536 parameters are
// hashed as soon as they are complete, the digests of all blocks then give the shard's.
//
//   digest(b) = SHA-256(theta of block b | v of block b);   hash = SHA-256(digest(0) | digest(1) | ...), digests in hex
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/averaging/exchange_plan.h"

namespace stagecoach {

// 256 KiB of fp32, 0.2 ms of hashing: what is left to do when the last piece has come.
constexpr uint64_t kHashBlock = 65536;

class ShardHash {
 public:
  explicit ShardHash(uint64_t parameters);
  // The values of `range` are final, in both; each parameter once. `v` is empty without momentum. Whole shards.
  void OnFinal(const ParameterRange& range, absl::Span<const float> theta, absl::Span<const float> v);
  // 64 hex digits. Precondition: everything is final.
  std::string Finish() const;

 private:
  uint64_t BlockSize(uint64_t block) const;

  const uint64_t parameters_;
  std::vector<uint64_t> missing_;  // parameters of each block
  std::vector<std::string> digests_;
};

// Of a shard that is complete: equal at all its owners.
std::string HashOfShard(absl::Span<const float> theta, absl::Span<const float> v);

}  // namespace stagecoach
