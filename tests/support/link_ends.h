// Two processes' worth of link on one machine: a loop and a factory for each side, and streams whose callbacks are
// recorded. Everything waits on conditions with a generous deadline.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "tests/support/in_process_link.h"
#include "worker/link/grpc_link.h"
#include "worker/link/peer_link.h"

namespace stagecoach {

enum class LinkKind { kInProcess, kGrpc };
constexpr std::chrono::seconds kTestDeadline(20);
constexpr size_t kTestPoolBytes = size_t{64} << 20;

inline StreamIdentity AnIdentity() {
  StreamIdentity identity;
  identity.run = "test-run";
  identity.cluster = "c0";
  identity.epoch = 1;
  identity.sender = "w0";
  identity.sender_incarnation = 11;
  identity.receiver_incarnation = 22;
  identity.cut = 2;
  identity.wire_format = 3;
  identity.rows = 10;
  identity.columns = 10;
  return identity;
}

inline StreamIdentity WithCut(StreamIdentity identity, uint32_t cut) {
  identity.cut = cut;
  return identity;
}

inline bool IsFilled(const BufferRef& payload, size_t bytes, int seed) {
  if (payload == nullptr || payload->size() != bytes) return false;
  for (size_t i = 0; i < bytes; ++i) {
    if (payload->bytes()[i] != static_cast<uint8_t>(i * 131 + i / 251 + seed)) return false;
  }
  return true;
}

// Runs `function` on the loop and waits for it.
inline void OnLoop(EventLoop* loop, const std::function<void()>& function) {
  std::promise<void> done;
  loop->Post([&] {
    function();
    done.set_value();
  });
  done.get_future().wait();
}

class LinkPair {
 public:
  explicit LinkPair(LinkKind kind, std::function<void(GrpcLinkOptions*)> adjust = nullptr)
      : sender_loop_("sender"), receiver_loop_("receiver"), pool_(HostBufferPool::Create(kTestPoolBytes)) {
    if (kind == LinkKind::kInProcess) {
      sender_ = network_.MakeFactory(&sender_loop_);
      receiver_ = network_.MakeFactory(&receiver_loop_);
      return;
    }
    sender_grpc_ = MakeGrpc(&sender_loop_, 11, adjust);
    receiver_grpc_ = MakeGrpc(&receiver_loop_, 22, adjust);
    address_ = "127.0.0.1:" + std::to_string(receiver_grpc_->listen_port());
  }
  ~LinkPair() {
    if (sender_grpc_) sender_grpc_->Shutdown();
    if (receiver_grpc_) receiver_grpc_->Shutdown();
    sender_loop_.Stop();
    receiver_loop_.Stop();
  }

  LinkFactory* sender() { return sender_grpc_ ? sender_grpc_.get() : sender_.get(); }
  LinkFactory* receiver() { return receiver_grpc_ ? receiver_grpc_.get() : receiver_.get(); }
  GrpcLinkFactory* receiver_grpc() { return receiver_grpc_.get(); }
  EventLoop* sender_loop() { return &sender_loop_; }
  EventLoop* receiver_loop() { return &receiver_loop_; }
  const std::string& address() const { return address_; }
  const std::shared_ptr<HostBufferPool>& receive_pool() const { return pool_; }

  BufferRef Filled(size_t bytes, int seed) {
    std::shared_ptr<HostBuffer> buffer = *send_pool_->Allocate(bytes);
    for (size_t i = 0; i < bytes; ++i) buffer->bytes()[i] = static_cast<uint8_t>(i * 131 + i / 251 + seed);
    return buffer;
  }
  std::map<std::string, uint64_t> rejections() {
    return receiver_grpc_ ? receiver_grpc_->rejections() : network_.rejections();
  }

 private:
  std::unique_ptr<GrpcLinkFactory> MakeGrpc(EventLoop* loop, uint64_t incarnation,
                                            const std::function<void(GrpcLinkOptions*)>& adjust) {
    GrpcLinkOptions options;
    options.loop = loop;
    options.pool = pool_;
    options.incarnation = incarnation;
    if (adjust) adjust(&options);
    return *GrpcLinkFactory::Create(std::move(options));
  }

  ThreadEventLoop sender_loop_, receiver_loop_;
  const std::shared_ptr<HostBufferPool> pool_;
  const std::shared_ptr<HostBufferPool> send_pool_ = HostBufferPool::Create(size_t{1} << 30);
  InProcessNetwork network_;
  std::unique_ptr<LinkFactory> sender_, receiver_;
  std::unique_ptr<GrpcLinkFactory> sender_grpc_, receiver_grpc_;
  std::string address_ = "unused:1";
};

// State that callbacks write and tests wait for.
class Recorder {
 public:
  template <typename Change>
  void Note(Change change) {
    std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }
  template <typename Condition>
  bool WaitUntil(Condition condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kTestDeadline, condition);
  }
  template <typename Read>
  auto Get(Read read) {
    std::lock_guard<std::mutex> lock(mutex_);
    return read();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class ReceivedStream {
 public:
  ReceivedStream(LinkPair* pair, const StreamIdentity& identity, uint64_t first_sequence, ReceiveLimits limits,
                 bool keep_payloads = true)
      : pair_(pair) {
    ReceiverCallbacks callbacks;
    callbacks.on_open = [this] { recorder_.Note([&] { open_ = true; }); };
    callbacks.on_frame = [this, keep_payloads](LinkFrame frame) {
      if (!keep_payloads) frame.payload = nullptr;
      recorder_.Note([&] { frames_.push_back(std::move(frame)); });
    };
    callbacks.on_closed = [this](absl::Status status) {
      recorder_.Note([&] {
        closed_ = std::move(status);
        was_closed_ = true;
      });
    };
    OnLoop(pair->receiver_loop(),
           [&] { receiver_ = pair->receiver()->OpenReceiver(identity, first_sequence, limits, std::move(callbacks)); });
  }
  ~ReceivedStream() {
    OnLoop(pair_->receiver_loop(), [&] { receiver_.reset(); });
  }
  bool WaitForFrames(size_t count) {
    return recorder_.WaitUntil([&] { return frames_.size() >= count; });
  }
  void ReleasePayloads() {
    recorder_.Note([&] {
      for (LinkFrame& frame : frames_) frame.payload = nullptr;
    });
  }
  bool WaitForOpen() {
    return recorder_.WaitUntil([&] { return open_; });
  }
  bool WaitForClosed() {
    return recorder_.WaitUntil([&] { return was_closed_; });
  }
  std::vector<LinkFrame> frames() {
    return recorder_.Get([&] { return frames_; });
  }
  absl::Status closed() {
    return recorder_.Get([&] { return closed_; });
  }
  LinkCounters counters() {
    LinkCounters counters;
    OnLoop(pair_->receiver_loop(), [&] { counters = receiver_->counters(); });
    return counters;
  }

 private:
  LinkPair* const pair_;
  Recorder recorder_;
  bool open_ = false, was_closed_ = false;
  std::vector<LinkFrame> frames_;
  absl::Status closed_;
  std::unique_ptr<FrameReceiver> receiver_;
};

class SendingStream {
 public:
  SendingStream(LinkPair* pair, const StreamIdentity& identity, uint64_t first_sequence, double connect_seconds = 15)
      : pair_(pair) {
    SenderCallbacks callbacks;
    callbacks.on_accepted = [this] { recorder_.Note([&] { accepted_ = true; }); };
    callbacks.on_sent = [this] { recorder_.Note([&] { ++sent_; }); };
    callbacks.on_closed = [this](absl::Status status) {
      recorder_.Note([&] {
        closed_ = std::move(status);
        was_closed_ = true;
      });
    };
    OnLoop(pair->sender_loop(), [&] {
      sender_ =
          pair->sender()->OpenSender(pair->address(), identity, first_sequence, connect_seconds, std::move(callbacks));
    });
  }
  ~SendingStream() {
    OnLoop(pair_->sender_loop(), [&] { sender_.reset(); });
  }
  void Send(FrameKind kind, uint64_t n, BufferRef payload) {
    LinkFrame frame;
    frame.kind = kind;
    frame.n = n;
    frame.payload = std::move(payload);
    OnLoop(pair_->sender_loop(), [&] { sender_->Send(std::move(frame)); });
  }
  void SendPiece(const PieceHeader& piece, BufferRef payload) {
    LinkFrame frame;
    frame.kind = FrameKind::kPiece;
    frame.piece = piece;
    frame.payload = std::move(payload);
    OnLoop(pair_->sender_loop(), [&] { sender_->Send(std::move(frame)); });
  }
  bool accepted() {
    return recorder_.Get([&] { return accepted_; });
  }
  bool WaitForAccepted() {
    return recorder_.WaitUntil([&] { return accepted_; });
  }
  bool WaitForSent(int count) {
    return recorder_.WaitUntil([&] { return sent_ >= count; });
  }
  bool WaitForClosed() {
    return recorder_.WaitUntil([&] { return was_closed_; });
  }
  absl::Status closed() {
    return recorder_.Get([&] { return closed_; });
  }
  size_t queued_frames() {
    size_t queued = 0;
    OnLoop(pair_->sender_loop(), [&] { queued = sender_->queued_frames(); });
    return queued;
  }
  LinkCounters counters() {
    LinkCounters counters;
    OnLoop(pair_->sender_loop(), [&] { counters = sender_->counters(); });
    return counters;
  }

 private:
  LinkPair* const pair_;
  Recorder recorder_;
  bool accepted_ = false, was_closed_ = false;
  int sent_ = 0;
  absl::Status closed_;
  std::unique_ptr<FrameSender> sender_;
};

}  // namespace stagecoach
