// What the program's exit code says to scripts and process supervisors.
#pragma once

#include "absl/status/status.h"

namespace stagecoach {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 64;
constexpr int kExitInternal = 70;
constexpr int kExitBadInput = 78;  // data or configuration: trying again does not help

inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return kExitBadInput;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitFailed;
  }
}

}  // namespace stagecoach
