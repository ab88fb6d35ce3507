// The ordered stream of frames of one direction of one boundary, as its two ends see it.
//
// The sender never blocks: the window (worker/domain) bounds what can be queued. Implementations: grpc_link (real),
// tests/support/in_process_link, the simulator's network. One conformance suite runs over all.
//
// Threading: methods are called on the worker loop; callbacks arrive on the worker loop (implementations Post).
// Errors: see each callback. A stream that failed stays failed; the owner decides what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/averaging/exchange_terms.h"
#include "worker/tensor/host_buffer.h"

namespace stagecoach {

enum class LinkDirection : uint8_t { kForward = 1, kBackward = 2, kAveraging = 3 };
enum class FrameKind : uint8_t {  // numbers of link.proto
  kActivation = 1,
  kGradient = 2,
  kEvaluation = 3,
  kDone = 4,
  kNorms = 5,
  kScalar = 6,
  kStop = 7,
  kPiece = 8,
};

// Who speaks to whom about what: the plan's view of one stream. Both ends hold the same value.
struct StreamIdentity {
  std::string run, cluster;
  uint64_t epoch = 0;
  std::string sender;
  uint64_t sender_incarnation = 0;
  uint64_t receiver_incarnation = 0;
  uint32_t cut = 0;
  LinkDirection direction = LinkDirection::kForward;
  uint32_t wire_format = 0;
  uint32_t rows = 0, columns = 0;
};

// A whole frame. `sequence` counts every frame of the stream (of any kind) from the number given at its start.
struct LinkFrame {
  uint64_t sequence = 0;  // set by the sender implementation
  FrameKind kind = FrameKind::kActivation;
  uint64_t n = 0;
  uint32_t evaluation = 0;
  bool nonfinite = false;
  PieceHeader piece;  // kPiece only
  BufferRef payload;  // may be null
};

// What a receiver accepts, checked before anything is allocated.
struct ReceiveLimits {
  size_t tensor_bytes = 0;       // exact size of ACTIVATION, GRADIENT and EVALUATION payloads
  size_t max_control_bytes = 0;  // most bytes of NORMS, SCALAR payloads
  // Frames delivered and not yet released by the owner. Tensors: mailbox capacity, more is an error. Pieces: the sender
  // is held by flow control until one is released (the in-process link delivers them all).
  uint32_t max_frames_held = 0;
  size_t max_piece_bytes = 0;  // most bytes of a PIECE payload, at most 1 MiB; 0: the stream carries frames, no pieces
};

struct LinkCounters {
  uint64_t frames = 0, payload_bytes = 0;
  uint64_t wire_bytes = 0;  // socket counters where there is a socket, else 0
};

class FrameSender {
 public:
  virtual ~FrameSender() = default;
  // Queues the frame. The payload is borrowed (not copied) until the transport has let go of it.
  virtual void Send(LinkFrame frame) = 0;
  virtual size_t queued_frames() const = 0;  // not yet handed to the transport
  virtual LinkCounters counters() const = 0;
};

struct SenderCallbacks {
  std::function<void()> on_accepted;            // the receiver answered Hello
  std::function<void()> on_sent;                // a queued frame was handed to the transport
  std::function<void(absl::Status)> on_closed;  // UNAVAILABLE: peer or link down; others as the peer said
};

struct ReceiverCallbacks {
  std::function<void()> on_open;            // a sender said Hello and was accepted
  std::function<void(LinkFrame)> on_frame;  // in sequence order, complete, checked
  std::function<void(absl::Status)> on_closed;
};

// One end of a receiving stream. Destroying it refuses the sender.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  virtual LinkCounters counters() const = 0;
};

// Opens streams. One per worker process.
class LinkFactory {
 public:
  virtual ~LinkFactory() = default;
  // Dials `address` (host:port) and says Hello. Retries the connection for at most `connect_seconds`.
  virtual std::unique_ptr<FrameSender> OpenSender(const std::string& address, const StreamIdentity& identity,
                                                  uint64_t first_sequence, double connect_seconds,
                                                  SenderCallbacks callbacks) = 0;
  // Waits for a sender with exactly this identity. Frames below first_sequence are duplicates: dropped and counted.
  virtual std::unique_ptr<FrameReceiver> OpenReceiver(const StreamIdentity& identity, uint64_t first_sequence,
                                                      const ReceiveLimits& limits, ReceiverCallbacks callbacks) = 0;
};

}  // namespace stagecoach
