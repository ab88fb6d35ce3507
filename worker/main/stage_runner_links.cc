// The links' side of StageRunner: streams to the neighbours, frames in and out.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "protos/link.pb.h"
#include "worker/main/stage_runner.h"

namespace stagecoach {
namespace {

// Frames that may wait in a send queue before the compute lane is held back: two to overlap encoding and wire, two for
// a norm vector and a scalar between them. More would only hold memory: the window bounds what is useful.
constexpr size_t kMaxQueuedFrames = 4;

// All stages of a plan begin loading at the same time; the slowest may read a large checkpoint first.
constexpr double kConnectSeconds = 120;

// Parameter tensors of a whole model: far above any real one, far below what a peer could do harm with.
constexpr size_t kMaxNorms = 1'000'000;

}  // namespace

const std::string& StageRunner::PeerOf(Side side) const {
  static const std::string kNobody;
  const std::optional<NeighbourLink>& link = side == Side::kAbove ? setup_.above : setup_.below;
  return link ? link->worker : kNobody;
}

void StageRunner::OpenLinks(LinkFactory& factory) {
  if (closed_ || links_open_) return;
  // Receivers first: a neighbour that dials early finds one.
  if (setup_.above) OpenSide(factory, Side::kAbove, *setup_.above);
  if (setup_.below) OpenSide(factory, Side::kBelow, *setup_.below);
  if (setup_.rounds) OpenRounds(factory);
  links_open_ = true;
  MaybeReady();
}

void StageRunner::OpenRounds(LinkFactory& factory) {
  const std::weak_ptr<StageRunner> weak = weak_from_this();
  StageRounds::Events events;
  events.on_report = [weak](WorkerMessage message) {
    const auto self = weak.lock();
    if (self && !self->closed_) self->events_.on_report(std::move(message));
  };
  events.on_result = [weak](uint64_t round, RoundValues values) {
    if (const auto self = weak.lock()) self->OnRoundResult(round, std::move(values));
  };
  events.on_captured = [weak](uint64_t step, CommonState state) {
    if (const auto self = weak.lock()) self->OnCommonCaptured(step, std::move(state));
  };
  events.on_failed = [weak](const absl::Status& status, const std::string& peer) {
    const auto self = weak.lock();
    // As with neighbours: who has finished may be released first. Before that the last checkpoint may need a round.
    if (self && !self->reported_finished_) self->Fail(status, peer);
  };
  rounds_ = std::make_unique<StageRounds>(*setup_.rounds, loops_.worker, loops_.averaging, &factory, std::move(events));
}

void StageRunner::OpenSide(LinkFactory& factory, Side side, const NeighbourLink& link) {
  const std::weak_ptr<StageRunner> weak = weak_from_this();
  const auto with_self = [weak](auto function) {
    return [weak, function](auto... arguments) {
      const std::shared_ptr<StageRunner> self = weak.lock();
      if (self && !self->closed_) function(*self, std::move(arguments)...);
    };
  };
  Stream& stream = StreamOf(side);
  ReceiverCallbacks receiver;
  receiver.on_open = with_self([side](StageRunner& self) {
    self.StreamOf(side).receiver_up = true;
    self.MaybeReady();
  });
  receiver.on_frame = with_self([side](StageRunner& self, LinkFrame frame) { self.OnFrame(side, std::move(frame)); });
  receiver.on_closed =
      with_self([side](StageRunner& self, absl::Status status) { self.OnStreamClosed(side, std::move(status)); });
  stream.receiver = factory.OpenReceiver(link.incoming, 0, link.limits, std::move(receiver));

  SenderCallbacks sender;
  sender.on_accepted = with_self([side](StageRunner& self) {
    self.StreamOf(side).sender_up = true;
    self.MaybeReady();
  });
  sender.on_sent = with_self([side](StageRunner& self) { self.OnSent(side); });
  sender.on_closed =
      with_self([side](StageRunner& self, absl::Status status) { self.OnStreamClosed(side, std::move(status)); });
  stream.sender = factory.OpenSender(link.address, link.outgoing, 0, kConnectSeconds, std::move(sender));
}

void StageRunner::OnFrame(Side side, LinkFrame frame) {
  if (!started_) {
    // A neighbour that started earlier can send what fits its window, and few frames beside it.
    const NeighbourLink& link = side == Side::kAbove ? *setup_.above : *setup_.below;
    if (early_frames_.size() >= 2 * link.limits.max_frames_held) {
      return Fail(absl::ResourceExhaustedError("more frames before the start than the windows allow"), link.worker);
    }
    early_frames_.emplace_back(side, std::move(frame));
    return;
  }
  Apply(FrameToEvent(side, std::move(frame)), PeerOf(side));
}

StageEffects StageRunner::FrameToEvent(Side side, LinkFrame frame) {
  return side == Side::kAbove ? FrameFromAbove(std::move(frame)) : FrameFromBelow(std::move(frame));
}

// Items cross in the order of the schedule, so the next one is known; a frame that names another is a protocol error.
absl::StatusOr<Item> StageRunner::ExpectedItem(const LinkFrame& frame, uint64_t* next_sequence) const {
  const Item item = setup_.core.order.At(*next_sequence);
  const bool evaluation = frame.kind == FrameKind::kEvaluation || frame.kind == FrameKind::kDone;
  if (item.n != frame.n || item.is_evaluation != evaluation || (evaluation && item.evaluation != frame.evaluation)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frame out of order: kind=", static_cast<int>(frame.kind), " n=", frame.n, " evaluation=", frame.evaluation,
        ", expected n=", item.n, " evaluation=", item.is_evaluation ? absl::StrCat(item.evaluation) : "none"));
  }
  ++*next_sequence;
  return item;
}

StageEffects StageRunner::FrameFromAbove(LinkFrame frame) {
  switch (frame.kind) {
    case FrameKind::kActivation:
    case FrameKind::kEvaluation: {
      ASSIGN_OR_RETURN(const Item item, ExpectedItem(frame, &next_input_));
      inputs_[item.sequence] = Payload{std::move(frame.payload), frame.nonfinite};
      return core_.OnInput(item);
    }
    case FrameKind::kScalar: {
      StepScalar scalar;
      const bool parsed = frame.payload &&
                          scalar.ParseFromArray(frame.payload->bytes().data(), static_cast<int>(frame.payload->size()));
      if (!parsed || scalar.step() != frame.n) {
        return absl::InvalidArgumentError(absl::StrCat("clip scalar that does not parse: step=", frame.n));
      }
      return core_.OnScalar(scalar.step(), scalar.clip(), scalar.square_sum(), scalar.skip());
    }
    case FrameKind::kStop: {
      const uint64_t m = setup_.core.rule.microbatches_per_step();
      if (frame.n % m != 0) {
        return absl::InvalidArgumentError(absl::StrCat("stop that is not at a step boundary: n=", frame.n));
      }
      return core_.OnStop(frame.n / m);
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("kind of frame that never comes from above: kind=", static_cast<int>(frame.kind)));
  }
}

StageEffects StageRunner::FrameFromBelow(LinkFrame frame) {
  switch (frame.kind) {
    case FrameKind::kGradient:
    case FrameKind::kDone: {
      ASSIGN_OR_RETURN(const Item item, ExpectedItem(frame, &next_gradient_));
      if (frame.kind == FrameKind::kGradient) {
        gradients_[item.sequence] = Payload{std::move(frame.payload), frame.nonfinite};
      }
      return core_.OnGradient(item);
    }
    case FrameKind::kNorms: {
      const size_t bytes = frame.payload ? frame.payload->size() : 0;
      if (bytes % sizeof(double) != 0 || bytes / sizeof(double) > kMaxNorms) {
        return absl::InvalidArgumentError(absl::StrCat("norm vector of an impossible size: bytes=", bytes));
      }
      std::vector<double> norms(bytes / sizeof(double));
      if (bytes > 0) std::memcpy(norms.data(), frame.payload->bytes().data(), bytes);
      return core_.OnNorms(frame.n, std::move(norms));
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("kind of frame that never comes from below: kind=", static_cast<int>(frame.kind)));
  }
}

void StageRunner::OnStreamClosed(Side side, absl::Status status) {
  // A neighbour that has finished may be released before this stage is; what it owed has arrived by then.
  if (finished_steps_) return;
  const absl::StatusCode code = status.ok() ? absl::StatusCode::kUnavailable : status.code();
  Fail(absl::Status(code, absl::StrCat("link to worker ", PeerOf(side), " (",
                                       side == Side::kAbove ? "stage above" : "stage below", ") is gone: ",
                                       status.ok() ? "closed by the peer" : std::string(status.message()))),
       PeerOf(side));
}

void StageRunner::OnSent(Side side) {
  if (StreamOf(side).blocked && UpdateBlocked()) {
    Apply(core_.OnSendBlocked(below_.blocked, above_.blocked), "");
  }
  MaybeFinished();
}

// True if the state of a side has changed: the core has to hear it.
bool StageRunner::UpdateBlocked() {
  bool changed = false;
  for (Stream* stream : {&above_, &below_}) {
    const bool blocked = stream->sender && stream->sender->queued_frames() > kMaxQueuedFrames;
    changed |= blocked != stream->blocked;
    stream->blocked = blocked;
  }
  return changed;
}

void StageRunner::SendItem(Side side, FrameKind kind, const Item& item) {
  Stream& stream = StreamOf(side);
  LinkFrame frame;
  frame.kind = kind;
  frame.n = item.n;
  frame.evaluation = item.evaluation;
  if (kind != FrameKind::kDone) {
    frame.nonfinite = output_.nonfinite;
    frame.payload = std::move(output_.bytes);
    output_ = Payload{};
  }
  stream.sender->Send(std::move(frame));
  if (rounds_) rounds_->OnPipelineFrame();
}

void StageRunner::SendControl(Side side, FrameKind kind, uint64_t n, absl::string_view payload) {
  LinkFrame frame;
  frame.kind = kind;
  frame.n = n;
  if (!payload.empty()) {
    auto buffer = control_pool_->Allocate(payload.size());
    if (!buffer.ok()) return Fail(buffer.status(), PeerOf(side));
    std::memcpy((*buffer)->bytes().data(), payload.data(), payload.size());
    frame.payload = *std::move(buffer);
  }
  StreamOf(side).sender->Send(std::move(frame));
}

}  // namespace stagecoach
