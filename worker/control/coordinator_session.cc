#include "worker/control/coordinator_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

// What a coordinator may ask for; outside it the message is a mistake.
constexpr uint32_t kLeastIntervalMs = 50, kLargestIntervalMs = 5000;

// Trying again would give the same answer.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

CoordinatorSession::CoordinatorSession(EventLoop* loop, ControlConnector* connector, SessionCallbacks callbacks,
                                       SessionLimits limits)
    : loop_(loop),
      connector_(connector),
      callbacks_(std::move(callbacks)),
      limits_(limits),
      interval_(limits.heartbeat),
      pause_(limits.first_pause) {}

CoordinatorSession::~CoordinatorSession() = default;

void CoordinatorSession::After(Duration delay, std::function<void()> function) {
  const std::weak_ptr<int> generation = generation_;
  loop_->PostAfter(delay, [generation, function = std::move(function)] {
    if (!generation.expired()) function();
  });
}

void CoordinatorSession::Start() {
  unregistered_since_ = loop_->Now();
  Connect();
}

void CoordinatorSession::Stop() {
  generation_.reset();
  registered_ = false;
  stream_.reset();
}

void CoordinatorSession::Connect() {
  generation_ = std::make_shared<int>(0);
  ControlCallbacks callbacks;
  callbacks.on_message = [this](CoordinatorMessage message) { OnMessage(std::move(message)); };
  callbacks.on_closed = [this](absl::Status status) { OnClosed(std::move(status)); };
  last_heard_ = loop_->Now();
  stream_ = connector_->Open(std::move(callbacks));
  WorkerMessage hello;
  *hello.mutable_register_() = callbacks_.make_register();
  stream_->Send(std::move(hello));
  CheckSilence();
}

void CoordinatorSession::Send(WorkerMessage message) {
  if (registered_) stream_->Send(std::move(message));
}

void CoordinatorSession::OnMessage(CoordinatorMessage message) {
  last_heard_ = loop_->Now();
  if (message.has_registered()) {
    if (registered_) return;
    registered_ = true;
    pause_ = limits_.first_pause;
    SetInterval(message.registered().heartbeat_interval_ms());
    SendHeartbeat();
  } else if (message.has_heartbeat_reply()) {
    SetInterval(message.heartbeat_reply().heartbeat_interval_ms());
  } else if (registered_) {
    callbacks_.on_message(std::move(message));
  }
}

void CoordinatorSession::SetInterval(uint32_t milliseconds) {
  if (milliseconds == 0) return;  // says nothing
  interval_ = std::chrono::milliseconds(std::clamp(milliseconds, kLeastIntervalMs, kLargestIntervalMs));
}

void CoordinatorSession::SendHeartbeat() {
  WorkerMessage message;
  *message.mutable_heartbeat() = callbacks_.make_heartbeat();
  message.mutable_heartbeat()->set_echo(++heartbeats_);
  stream_->Send(std::move(message));
  After(interval_, [this] { SendHeartbeat(); });
}

void CoordinatorSession::CheckSilence() {
  const Duration left = limits_.silence - (loop_->Now() - last_heard_);
  if (left > Duration::zero()) return After(left, [this] { CheckSilence(); });
  OnClosed(absl::UnavailableError("the coordinator has been silent for too long"));
}

void CoordinatorSession::OnClosed(absl::Status status) {
  if (status.ok()) status = absl::UnavailableError("the coordinator closed the stream");
  const bool was_registered = std::exchange(registered_, false);
  const MonoTime now = loop_->Now();
  generation_ = std::make_shared<int>(0);
  stream_.reset();
  if (was_registered) {
    unregistered_since_ = now;
    callbacks_.on_lost(status);
  }
  if (IsFinal(status) || now - unregistered_since_ > limits_.give_up_after) {
    generation_.reset();
    callbacks_.on_given_up(
        absl::Status(status.code(), absl::StrCat("cannot register at the coordinator: ", status.message())));
    return;
  }
  After(pause_, [this] { Connect(); });
  pause_ = std::min(2 * pause_, limits_.longest_pause);
}

}  // namespace stagecoach
