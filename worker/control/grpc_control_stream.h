// ControlStream over gRPC: the bidirectional Session call of coordinator.proto.
//
// Threading: as control_stream.h; reactions run on gRPC's pollers and only decode and Post. The connector must be
// destroyed on a thread that is neither a poller nor the loop's own while streams are still open: it waits for them.
#pragma once

#include <memory>

#include "common/event_loop.h"
#include "worker/control/control_stream.h"

namespace grpc {
class Channel;
}

namespace stagecoach {

class GrpcControlConnector final : public ControlConnector {
 public:
  GrpcControlConnector(std::shared_ptr<grpc::Channel> channel, EventLoop* loop);
  ~GrpcControlConnector() override;
  std::unique_ptr<ControlStream> Open(ControlCallbacks callbacks) override;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace stagecoach
