// Exit statuses of every command (docs/command-line.md), and how an error becomes one.
//
// Threading: pure.
#pragma once

#include "absl/status/status.h"

namespace stagecoach {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 64,        // arguments, run spec
  kExitUnavailable = 69,  // nobody answers at that address
  kExitInternal = 70,
  kExitTryAgain = 75,
  kExitNotAllowed = 77,
  kExitInterrupted = 130,  // a second Ctrl-C: ended at once, nothing was saved
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    case absl::StatusCode::kResourceExhausted:
      return kExitTryAgain;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotAllowed;
    default:
      return kExitFailed;
  }
}

}  // namespace stagecoach
