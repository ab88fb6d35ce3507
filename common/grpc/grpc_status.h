// absl::Status <-> grpc::Status. The codes of both are the same numbers.
//
// Threading: pure functions.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace stagecoach {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace stagecoach
