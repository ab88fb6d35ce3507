// Keeps gRPC's callback pollers awake. After a second without a completion they sleep for 100 ms each time; calls that
// come about once a second then take 70 ms longer. An empty in-process call every 250 ms prevents that without a
// socket.
//
// Threading: Shared and the destructor on any thread but gRPC's own and an event loop (the last owner waits for the
// tick to stop). Ownership: one per process, shared by everything that uses gRPC.
#pragma once

#include <memory>

namespace stagecoach {

class PollerTick {
 public:
  static std::shared_ptr<PollerTick> Shared();
  ~PollerTick();
  PollerTick(const PollerTick&) = delete;
  PollerTick& operator=(const PollerTick&) = delete;

 private:
  PollerTick();
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace stagecoach
