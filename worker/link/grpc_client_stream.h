// One sending stream: queue, chunks, attempts to connect, signs of life. Internal to the gRPC link.
//
// Threading: public methods on the loop (BeginShutdown, Abort: Shutdown's thread); events on gRPC threads. One mutex,
// held for bookkeeping only. Callbacks run on the loop.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/event_loop.h"
#include "worker/link/grpc_frame_call.h"
#include "worker/link/peer_link.h"
#include "worker/link/socket_bytes.h"

namespace stagecoach {

class GrpcClientStream;

struct GrpcClientSet {
  EventLoop* loop = nullptr;
  Duration silence{};
  std::mutex mutex;
  std::condition_variable calls_changed;
  int live_calls = 0;
  bool stopping = false;
  MonoTime last_tick{};
  uint64_t next_id = 0;
  std::map<uint64_t, std::shared_ptr<GrpcClientStream>> streams;

  bool CallStarts();  // false when stopping
  void CallEnds();
  void Remove(uint64_t id);
  bool Stopping();
};

class GrpcClientStream final : public GrpcFrameCallEvents, public std::enable_shared_from_this<GrpcClientStream> {
 public:
  struct Target {
    std::string address;
    StreamIdentity identity;
    uint64_t first_sequence = 0;
    Duration connect{};
  };
  GrpcClientStream(std::shared_ptr<GrpcClientSet> set, uint64_t id, Target target, SenderCallbacks callbacks);

  void StartAttempt();
  void Send(LinkFrame frame);
  size_t queued_frames() const;
  LinkCounters counters();
  void Tick(MonoTime now, bool we_slept);
  void Close();          // by the owner: what is queued still goes out, for a bounded time; no callbacks any more
  void BeginShutdown();  // the same for all
  void Abort();          // cancels what is still there

  void OnWritten(bool ok) override;
  void OnControl(const LinkControl& control, const std::string& peer) override;
  void OnReadsEnded() override;
  void OnEnding() override;
  std::function<void()> OnEnded(const absl::Status& status) override;

 private:
  void Pump();
  void WriteNextChunk(std::unique_lock<std::mutex> lock);
  void OnAccepted(const std::string& peer);
  void OnAttemptEnded(const absl::Status& status);
  void ReportClosed(const absl::Status& status);
  void FailWith(absl::Status status);
  std::string PeerName() const;

  const std::shared_ptr<GrpcClientSet> set_;
  const uint64_t id_;
  const Target target_;
  const MonoTime connect_deadline_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;

  // Loop only.
  SenderCallbacks callbacks_;
  bool closed_ = false;
  bool attempt_running_ = false;  // from StartAttempt until gRPC does not know us any more
  std::unique_ptr<SocketBytes> socket_;
  MonoTime last_sample_{};

  mutable std::mutex mutex_;
  GrpcFrameCall* call_ = nullptr;  // null: no attempt is running
  bool accepted_ = false;
  bool reads_ended_ = false;
  bool writing_ = false;           // a message is with gRPC
  bool frame_in_message_ = false;  // it belongs to a frame (not a Hello, not a tick)
  bool frame_open_ = false;        // current_ is not completely written
  bool tick_due_ = false;
  bool closing_ = false;  // the owner has gone
  bool half_closed_ = false;
  std::optional<absl::Status> own_verdict_;  // why we cancelled; replaces gRPC's CANCELLED
  std::deque<LinkFrame> queue_;
  LinkFrame current_;  // of chunks_; touched by the one who set writing_
  FrameChunks chunks_;
  uint64_t next_sequence_;
  MonoTime last_heard_{}, last_write_{}, closing_deadline_{};
  LinkCounters counters_;
};

}  // namespace stagecoach
