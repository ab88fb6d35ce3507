// Turns what torch throws into absl::Status at the executor's boundary.
//
// Threading: a pure function. Errors: RESOURCE_EXHAUSTED when memory ran out, else INTERNAL.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {

// Runs body(), which returns a Status or a StatusOr. `what` says what was being done.
template <typename Body>
auto CatchTorch(absl::string_view what, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": the device has no memory left; use a smaller microbatch, ",
                     "recompute: on, or more stages: ", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": no memory left; use a smaller microbatch, recompute: on, or more stages"));
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  }
}

}  // namespace stagecoach
