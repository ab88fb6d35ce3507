// Exit statuses of every program (docs/command-line.md), and how an error becomes one.
//
// Threading: pure.
#pragma once

#include "absl/status/status.h"

namespace stagecoach {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 64,        // of a command: arguments, run spec or data
  kExitUnavailable = 69,  // nobody answers at that address
  kExitInternal = 70,
  kExitTryAgain = 75,
  kExitNotAllowed = 77,
  kExitConfiguration = 78,  // of a service: starting it again as it is does not help
  kExitInterrupted = 130,   // Ctrl-C, and nothing was saved
};

// Of a command that somebody gave.
inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
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
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

// Of a service that a supervisor started: what a restart cannot mend is told from what it can.
inline ExitCode ServiceExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return kExitConfiguration;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitUnavailable;
  }
}

}  // namespace stagecoach
