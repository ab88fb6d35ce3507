#include "tests/support/in_process_link.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/link/hello.h"

namespace stagecoach {
namespace {

struct ReceivingEnd {
  EventLoop* loop = nullptr;
  StreamIdentity identity;
  uint64_t next_sequence = 0;
  ReceiveLimits limits;
  ReceiverCallbacks callbacks;  // loop only
  bool closed = false;          // loop only
  std::shared_ptr<std::atomic<uint32_t>> held = std::make_shared<std::atomic<uint32_t>>(0);
  bool bound = false;
  LinkCounters counters;
};

struct SendingEnd {
  EventLoop* loop = nullptr;
  StreamIdentity identity;
  uint64_t next_sequence = 0;
  SenderCallbacks callbacks;    // loop only
  bool closed = false;          // loop only
  std::deque<LinkFrame> queue;  // until a receiver is there
  std::shared_ptr<ReceivingEnd> receiver;
  bool failed = false;  // stays so
  LinkCounters counters;
};

bool IsTensorKind(FrameKind kind) {
  return kind == FrameKind::kActivation || kind == FrameKind::kGradient || kind == FrameKind::kEvaluation;
}

void PostClosed(const std::shared_ptr<SendingEnd>& end, absl::Status status) {
  end->loop->Post([end, status = std::move(status)] {
    if (std::exchange(end->closed, true) || !end->callbacks.on_closed) return;
    end->callbacks.on_closed(status);
  });
}

void PostClosed(const std::shared_ptr<ReceivingEnd>& end, absl::Status status) {
  end->loop->Post([end, status = std::move(status)] {
    if (std::exchange(end->closed, true) || !end->callbacks.on_closed) return;
    end->callbacks.on_closed(status);
  });
}

// The payload as the receiver sees it: counted until the last reference has gone.
BufferRef Counted(BufferRef payload, const std::shared_ptr<std::atomic<uint32_t>>& held) {
  held->fetch_add(1);
  const HostBuffer* const memory = payload.get();
  return BufferRef(memory, [payload = std::move(payload), held](const HostBuffer*) mutable {
    payload.reset();
    held->fetch_sub(1);
  });
}

}  // namespace

struct InProcessNetwork::State {
  mutable std::mutex mutex;  // guards everything here but what is marked "loop only"
  RejectCounts rejects;
  uint64_t next_id = 0;
  std::map<uint64_t, std::shared_ptr<SendingEnd>> senders;
  std::map<uint64_t, std::shared_ptr<ReceivingEnd>> receivers;

  void Connect(const std::shared_ptr<SendingEnd>& sender);
  void Transfer(const std::shared_ptr<SendingEnd>& sender);
  bool Deliver(const std::shared_ptr<SendingEnd>& sender, LinkFrame frame);
  void Fail(const std::shared_ptr<SendingEnd>& sender, RejectReason reason, absl::Status status);
};

// Looks for the receiver of `sender`. The lock is held.
void InProcessNetwork::State::Connect(const std::shared_ptr<SendingEnd>& sender) {
  const Hello hello = MakeHello(sender->identity, sender->next_sequence - sender->queue.size());
  for (const auto& [id, receiver] : receivers) {
    if (receiver->bound || !SameStreamKey(hello, receiver->identity)) continue;
    // One network joins many workers; each is told apart by its life.
    if (receiver->identity.receiver_incarnation != sender->identity.receiver_incarnation) continue;
    Refusal refusal;
    const HelloMatch match = MatchHello(hello, receiver->identity, receiver->next_sequence, &refusal);
    if (match == HelloMatch::kWait) continue;
    if (match == HelloMatch::kRefuse) {
      rejects.Add(refusal.reason);
      sender->failed = true;
      PostClosed(sender, refusal.status);
      return;
    }
    receiver->bound = true;
    sender->receiver = receiver;
    receiver->loop->Post([receiver] {
      if (!receiver->closed && receiver->callbacks.on_open) receiver->callbacks.on_open();
    });
    sender->loop->Post([sender] {
      if (!sender->closed && sender->callbacks.on_accepted) sender->callbacks.on_accepted();
    });
    Transfer(sender);
    return;
  }
}

void InProcessNetwork::State::Transfer(const std::shared_ptr<SendingEnd>& sender) {
  while (sender->receiver != nullptr && !sender->queue.empty()) {
    LinkFrame frame = std::move(sender->queue.front());
    sender->queue.pop_front();
    if (!Deliver(sender, std::move(frame))) return;
    sender->loop->Post([sender] {
      if (!sender->closed && sender->callbacks.on_sent) sender->callbacks.on_sent();
    });
  }
}

void InProcessNetwork::State::Fail(const std::shared_ptr<SendingEnd>& sender, RejectReason reason,
                                   absl::Status status) {
  rejects.Add(reason);
  PostClosed(sender->receiver, status);
  PostClosed(sender, std::move(status));
  sender->receiver = nullptr;
  sender->failed = true;
  sender->queue.clear();
}

// False: the stream has failed.
bool InProcessNetwork::State::Deliver(const std::shared_ptr<SendingEnd>& sender, LinkFrame frame) {
  const std::shared_ptr<ReceivingEnd>& receiver = sender->receiver;
  const size_t bytes = frame.payload == nullptr ? 0 : frame.payload->size();
  ++sender->counters.frames;
  sender->counters.payload_bytes += bytes;
  if (frame.sequence < receiver->next_sequence) {
    rejects.Add(RejectReason::kDuplicate);
    return true;
  }
  if ((frame.kind == FrameKind::kPiece) != (receiver->limits.max_piece_bytes > 0) ||
      (frame.kind == FrameKind::kPiece && (bytes == 0 || bytes > receiver->limits.max_piece_bytes))) {
    Fail(sender, frame.kind == FrameKind::kPiece ? RejectReason::kOverLimit : RejectReason::kMalformed,
         absl::InvalidArgumentError(
             absl::StrCat(DescribeStream(sender->identity), ": not a frame of this stream: bytes=", bytes)));
    return false;
  }
  frame.piece.epoch = sender->identity.epoch;
  const bool tensor = IsTensorKind(frame.kind);
  if (frame.kind != FrameKind::kPiece &&
      (tensor ? bytes != receiver->limits.tensor_bytes : bytes > receiver->limits.max_control_bytes)) {
    Fail(sender, tensor ? RejectReason::kSize : RejectReason::kOverLimit,
         absl::InvalidArgumentError(
             absl::StrCat(DescribeStream(sender->identity), ": frame of an unexpected size: bytes=", bytes)));
    return false;
  }
  if (tensor && bytes > 0) {
    const uint32_t limit = receiver->limits.max_frames_held;
    if (limit > 0 && receiver->held->load() >= limit) {
      Fail(sender, RejectReason::kWindowExceeded,
           absl::ResourceExhaustedError(
               absl::StrCat(DescribeStream(sender->identity), ": more frames than the window allows: limit=", limit)));
      return false;
    }
    frame.payload = Counted(std::move(frame.payload), receiver->held);
  }
  receiver->next_sequence = frame.sequence + 1;
  ++receiver->counters.frames;
  receiver->counters.payload_bytes += bytes;
  receiver->loop->Post([receiver, frame = std::move(frame)]() mutable {
    if (!receiver->closed && receiver->callbacks.on_frame) receiver->callbacks.on_frame(std::move(frame));
  });
  return true;
}

class InProcessNetwork::Sender final : public FrameSender {
 public:
  Sender(std::shared_ptr<State> state, uint64_t id, std::shared_ptr<SendingEnd> end)
      : state_(std::move(state)), id_(id), end_(std::move(end)) {}
  ~Sender() override {
    end_->closed = true;
    end_->callbacks = {};
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->senders.erase(id_);
    if (end_->receiver == nullptr) return;
    PostClosed(end_->receiver,
               absl::UnavailableError(absl::StrCat(DescribeStream(end_->identity), ": the sender closed the stream")));
  }
  void Send(LinkFrame frame) override {
    std::lock_guard<std::mutex> lock(state_->mutex);
    frame.sequence = end_->next_sequence++;
    if (end_->failed) return;
    end_->queue.push_back(std::move(frame));
    state_->Transfer(end_);
  }
  size_t queued_frames() const override {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return end_->queue.size();
  }
  LinkCounters counters() const override {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return end_->counters;
  }

 private:
  const std::shared_ptr<State> state_;
  const uint64_t id_;
  const std::shared_ptr<SendingEnd> end_;
};

class InProcessNetwork::Receiver final : public FrameReceiver {
 public:
  Receiver(std::shared_ptr<State> state, uint64_t id, std::shared_ptr<ReceivingEnd> end)
      : state_(std::move(state)), id_(id), end_(std::move(end)) {}
  ~Receiver() override {
    end_->closed = true;
    end_->callbacks = {};
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->receivers.erase(id_);
    for (const auto& [id, sender] : state_->senders) {
      if (sender->receiver != end_) continue;
      sender->receiver = nullptr;
      sender->failed = true;
      PostClosed(sender, absl::UnavailableError(
                             absl::StrCat(DescribeStream(end_->identity), ": the receiver closed the stream")));
    }
  }
  LinkCounters counters() const override {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return end_->counters;
  }

 private:
  const std::shared_ptr<State> state_;
  const uint64_t id_;
  const std::shared_ptr<ReceivingEnd> end_;
};

class InProcessNetwork::Factory final : public LinkFactory {
 public:
  Factory(std::shared_ptr<State> state, EventLoop* loop) : state_(std::move(state)), loop_(loop) {}

  std::unique_ptr<FrameSender> OpenSender(const std::string&, const StreamIdentity& identity, uint64_t first_sequence,
                                          double connect_seconds, SenderCallbacks callbacks) override {
    auto end = std::make_shared<SendingEnd>();
    end->loop = loop_;
    end->identity = identity;
    end->next_sequence = first_sequence;
    end->callbacks = std::move(callbacks);
    uint64_t id = 0;
    {
      std::lock_guard<std::mutex> lock(state_->mutex);
      id = state_->next_id++;
      state_->senders[id] = end;
      state_->Connect(end);
    }
    loop_->PostAfter(
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(connect_seconds)), [state = state_, end] {
          std::lock_guard<std::mutex> lock(state->mutex);
          if (end->receiver != nullptr) return;
          PostClosed(end, absl::UnavailableError(absl::StrCat(DescribeStream(end->identity), ": no receiver in time")));
        });
    return std::make_unique<Sender>(state_, id, std::move(end));
  }

  std::unique_ptr<FrameReceiver> OpenReceiver(const StreamIdentity& identity, uint64_t first_sequence,
                                              const ReceiveLimits& limits, ReceiverCallbacks callbacks) override {
    auto end = std::make_shared<ReceivingEnd>();
    end->loop = loop_;
    end->identity = identity;
    end->next_sequence = first_sequence;
    end->limits = limits;
    end->callbacks = std::move(callbacks);
    std::lock_guard<std::mutex> lock(state_->mutex);
    const uint64_t id = state_->next_id++;
    state_->receivers[id] = end;
    for (const auto& [sender_id, sender] : state_->senders) {
      if (!end->bound && sender->receiver == nullptr && !sender->failed) state_->Connect(sender);
    }
    return std::make_unique<Receiver>(state_, id, std::move(end));
  }

 private:
  const std::shared_ptr<State> state_;
  EventLoop* const loop_;
};

InProcessNetwork::InProcessNetwork() : state_(std::make_shared<State>()) {}
InProcessNetwork::~InProcessNetwork() = default;

std::unique_ptr<LinkFactory> InProcessNetwork::MakeFactory(EventLoop* loop) {
  return std::make_unique<Factory>(state_, loop);
}

std::map<std::string, uint64_t> InProcessNetwork::rejections() const { return state_->rejects.AsMap(); }

}  // namespace stagecoach
