// The trust boundary of the control stream: what a worker or user sent is well-formed, finite and within limits.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT naming the field.
#pragma once

#include "absl/status/status.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

absl::Status CheckRegister(const Register& message);
// Every message but Register.
absl::Status CheckWorkerMessage(const WorkerMessage& message);
absl::Status CheckSubmit(const SubmitRequest& request);

// Sum of all fields of type `bytes` set in the message, however deep. 0 unless someone sends tensors this way.
uint64_t BytesFieldsSize(const google::protobuf::Message& message);

}  // namespace stagecoach
