// EXPECT_THAT(status, IsOk()) and EXPECT_THAT(status, StatusIs(code, "part of the message")), for absl::Status and
// absl::StatusOr. A failed expectation prints the whole status.
#pragma once

#include <gmock/gmock.h>

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <class T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P2(StatusIs, code, part,
           "has code " + absl::StatusCodeToString(code) + " and a message with '" + std::string(part) + "'") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code && status.ToString().find(part) != std::string::npos;
}

}  // namespace stagecoach
