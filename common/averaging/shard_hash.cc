#include "common/averaging/shard_hash.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "common/sha256.h"

namespace stagecoach {
namespace {

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

ShardHash::ShardHash(uint64_t parameters)
    : parameters_(parameters), missing_((parameters + kHashBlock - 1) / kHashBlock), digests_(missing_.size()) {
  for (uint64_t block = 0; block < missing_.size(); ++block) missing_[block] = BlockSize(block);
}

uint64_t ShardHash::BlockSize(uint64_t block) const { return std::min(kHashBlock, parameters_ - block * kHashBlock); }

void ShardHash::OnFinal(const ParameterRange& range, absl::Span<const float> theta, absl::Span<const float> v) {
  const uint64_t end = range.first + range.count;
  for (uint64_t next = range.first; next < end;) {
    const uint64_t block = next / kHashBlock, first = block * kHashBlock;
    const uint64_t here = std::min(end, first + BlockSize(block)) - next;
    next += here;
    missing_[block] -= here;
    if (missing_[block] > 0) continue;
    Sha256 hash;
    hash.Update(BytesOf(theta.subspan(first, BlockSize(block))));
    if (!v.empty()) hash.Update(BytesOf(v.subspan(first, BlockSize(block))));
    digests_[block] = hash.FinishHex();
  }
}

std::string ShardHash::Finish() const {
  Sha256 hash;
  for (const std::string& digest : digests_) hash.Update(digest);
  return hash.FinishHex();
}

std::string HashOfShard(absl::Span<const float> theta, absl::Span<const float> v) {
  ShardHash hash(theta.size());
  hash.OnFinal({0, theta.size()}, theta, v);
  return hash.Finish();
}

}  // namespace stagecoach
