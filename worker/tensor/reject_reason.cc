#include "worker/tensor/reject_reason.h"

namespace stagecoach {

const char* RejectReasonName(RejectReason reason) {
  switch (reason) {
    case RejectReason::kRun:
      return "run";
    case RejectReason::kEpoch:
      return "epoch";
    case RejectReason::kIncarnation:
      return "incarnation";
    case RejectReason::kSequenceGap:
      return "sequence_gap";
    case RejectReason::kDuplicate:
      return "duplicate";
    case RejectReason::kSize:
      return "size";
    case RejectReason::kOverLimit:
      return "over_limit";
    case RejectReason::kChecksum:
      return "checksum";
    case RejectReason::kMalformed:
      return "malformed";
    case RejectReason::kShape:
      return "shape";
    case RejectReason::kCodec:
      return "codec";
    case RejectReason::kWindowExceeded:
      return "window_exceeded";
    case RejectReason::kSilent:
      return "silent";
    case RejectReason::kTruncated:
      return "truncated";
  }
  return "unknown";
}

std::map<std::string, uint64_t> RejectCounts::AsMap() const {
  std::map<std::string, uint64_t> counts;
  for (size_t i = 0; i < kNumRejectReasons; ++i) {
    const auto reason = static_cast<RejectReason>(i);
    if (Get(reason) > 0) counts[RejectReasonName(reason)] = Get(reason);
  }
  return counts;
}

}  // namespace stagecoach
