// Why a message or a stream was refused or dropped. A bounded set: it is also a metric label.
//
// Threading: RejectCounts is safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace stagecoach {

enum class RejectReason : uint8_t {
  kRun,             // another run or cluster, or nobody waits for this stream
  kEpoch,           // stale plan
  kIncarnation,     // an earlier or another life of a process
  kSequenceGap,     // a frame or chunk is missing
  kDuplicate,       // already received: dropped
  kSize,            // not the size that the plan says
  kOverLimit,       // above a fixed limit
  kChecksum,        // CRC32C differs
  kMalformed,       // not a frame
  kShape,           // rows or columns differ from the plan
  kCodec,           // number format differs from the plan
  kWindowExceeded,  // more frames than the receiver granted
  kSilent,          // no sign of life
  kTruncated,       // the stream ended in the middle of a frame
};
constexpr size_t kNumRejectReasons = 14;

const char* RejectReasonName(RejectReason reason);

class RejectCounts {
 public:
  void Add(RejectReason reason) { counts_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  uint64_t Get(RejectReason reason) const {
    return counts_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
  }
  std::map<std::string, uint64_t> AsMap() const;  // reasons that occurred

 private:
  std::array<std::atomic<uint64_t>, kNumRejectReasons> counts_{};
};

}  // namespace stagecoach
