#include "common/grpc/grpc_status.h"

#include <string>

namespace stagecoach {
namespace {

#define STAGECOACH_SAME_CODE(absl_name, grpc_name)                                                  \
  static_assert(static_cast<int>(absl::StatusCode::absl_name) == static_cast<int>(grpc::grpc_name), \
                "absl and gRPC number " #grpc_name " differently")
STAGECOACH_SAME_CODE(kOk, OK);
STAGECOACH_SAME_CODE(kCancelled, CANCELLED);
STAGECOACH_SAME_CODE(kUnknown, UNKNOWN);
STAGECOACH_SAME_CODE(kInvalidArgument, INVALID_ARGUMENT);
STAGECOACH_SAME_CODE(kDeadlineExceeded, DEADLINE_EXCEEDED);
STAGECOACH_SAME_CODE(kNotFound, NOT_FOUND);
STAGECOACH_SAME_CODE(kAlreadyExists, ALREADY_EXISTS);
STAGECOACH_SAME_CODE(kPermissionDenied, PERMISSION_DENIED);
STAGECOACH_SAME_CODE(kResourceExhausted, RESOURCE_EXHAUSTED);
STAGECOACH_SAME_CODE(kFailedPrecondition, FAILED_PRECONDITION);
STAGECOACH_SAME_CODE(kAborted, ABORTED);
STAGECOACH_SAME_CODE(kOutOfRange, OUT_OF_RANGE);
STAGECOACH_SAME_CODE(kUnimplemented, UNIMPLEMENTED);
STAGECOACH_SAME_CODE(kInternal, INTERNAL);
STAGECOACH_SAME_CODE(kUnavailable, UNAVAILABLE);
STAGECOACH_SAME_CODE(kDataLoss, DATA_LOSS);
STAGECOACH_SAME_CODE(kUnauthenticated, UNAUTHENTICATED);
#undef STAGECOACH_SAME_CODE

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.raw_code()),
          std::string(status.message().data(), status.message().size())};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace stagecoach
