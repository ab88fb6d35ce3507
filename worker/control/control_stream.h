// One stream between a worker and its coordinator, as the worker sees it.
//
// Threading: methods are called on the worker loop; callbacks arrive there (implementations Post).
// Errors: on_closed once, with the status of the stream; nothing follows it.
// Ownership: destroying the stream cancels it; no callback comes afterwards.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

class ControlStream {
 public:
  virtual ~ControlStream() = default;
  // Queues the message. A full queue closes the stream with RESOURCE_EXHAUSTED: reports must not get lost silently.
  virtual void Send(WorkerMessage message) = 0;
};

struct ControlCallbacks {
  std::function<void(CoordinatorMessage)> on_message;
  std::function<void(absl::Status)> on_closed;
};

class ControlConnector {
 public:
  virtual ~ControlConnector() = default;
  // Begins a stream; whether the coordinator can be reached shows in the callbacks.
  virtual std::unique_ptr<ControlStream> Open(ControlCallbacks callbacks) = 0;
};

}  // namespace stagecoach
