// Keeps a worker registered: opens the control stream, says Register, sends heartbeats, and begins again with growing
// pauses when the stream breaks.
//
//   connecting --Registered--> registered --stream breaks or stays silent--> waiting --pause over--> connecting
//        connecting/waiting for longer than give_up_after, or refused for good --> given up
//
// A worker that was registered and lost its stream drops its stage and comes back as a new incarnation: the coordinator
// has fenced the old one.
//
// Threading: confined to the worker loop. Errors: on_lost whenever a registered stream breaks; on_given_up once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/event_loop.h"
#include "protos/coordinator.pb.h"
#include "worker/control/control_stream.h"

namespace stagecoach {

struct SessionLimits {
  Duration give_up_after = std::chrono::seconds(60);  // without being registered
  Duration silence = std::chrono::seconds(15);        // registered, nothing heard: the stream counts as broken
  Duration first_pause = std::chrono::milliseconds(100);
  Duration longest_pause = std::chrono::seconds(5);
  Duration heartbeat = std::chrono::milliseconds(250);  // until the coordinator names another interval
};

struct SessionCallbacks {
  std::function<Register()> make_register;  // called at each attempt; draws a new incarnation
  std::function<Heartbeat()> make_heartbeat;
  std::function<void(CoordinatorMessage)> on_message;  // all but Registered and HeartbeatReply
  std::function<void(absl::Status)> on_lost;
  std::function<void(absl::Status)> on_given_up;
};

class CoordinatorSession {
 public:
  CoordinatorSession(EventLoop* loop, ControlConnector* connector, SessionCallbacks callbacks,
                     SessionLimits limits = {});
  ~CoordinatorSession();

  void Start();
  void Stop();  // ends the stream; no callback comes afterwards
  // Dropped when not registered: what it reports belongs to a registration that is over.
  void Send(WorkerMessage message);
  bool registered() const { return registered_; }

 private:
  void Connect();
  void OnMessage(CoordinatorMessage message);
  void OnClosed(absl::Status status);
  void SendHeartbeat();
  void CheckSilence();
  void SetInterval(uint32_t milliseconds);
  // Runs `function` after `delay` unless the session was stopped or the stream was replaced since.
  void After(Duration delay, std::function<void()> function);

  EventLoop* const loop_;
  ControlConnector* const connector_;
  const SessionCallbacks callbacks_;
  const SessionLimits limits_;
  // Timers hold a weak reference to this; it is replaced for every stream.
  std::shared_ptr<int> generation_ = std::make_shared<int>(0);
  std::unique_ptr<ControlStream> stream_;
  bool registered_ = false;
  Duration interval_;
  Duration pause_;
  MonoTime unregistered_since_{0};
  MonoTime last_heard_{0};
  uint64_t heartbeats_ = 0;
};

}  // namespace stagecoach
