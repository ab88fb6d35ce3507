// The gRPC streams of the coordinator, each driven by the coordinator loop alone: reactions only post to it.
//
// A reactor finishes only from the loop, so it lives as long as the loop may touch it; it deletes itself after OnDone,
// once the loop has let go of it.
//
// Threading: reactions on gRPC's pollers; everything else on the loop. Ownership: gRPC, until OnDone.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "common/event_loop.h"
#include "coordinator/service/fleet_control.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

// One message is read at a time, and the next one after the loop has handled it: a worker cannot fill our memory.
grpc::ServerBidiReactor<WorkerMessage, CoordinatorMessage>* NewSessionReactor(EventLoop* loop, FleetControl* fleet);

// loop: also for the refusal when there is no such run.
grpc::ServerWriteReactor<RunStatus>* NewWatchReactor(EventLoop* loop, FleetControl* fleet, const WatchRequest& request);

}  // namespace stagecoach
