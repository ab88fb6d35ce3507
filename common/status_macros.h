// Early returns for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                            \
  do {                                                         \
    absl::Status status_macro_result = (expression);           \
    if (!status_macro_result.ok()) return status_macro_result; \
  } while (false)

#define STAGECOACH_CONCAT_INNER(a, b) a##b
#define STAGECOACH_CONCAT(a, b) STAGECOACH_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(auto value, Function());
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(STAGECOACH_CONCAT(status_or_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return temporary.status();                  \
  declaration = std::move(temporary).value()
