#include "worker/link/grpc_client_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/channel_settings.h"
#include "worker/link/hello.h"

namespace stagecoach {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxQueuedFrames = 4096;  // windows are below 100: beyond this the credits are broken
constexpr milliseconds kRetryAfter(200);   // between attempts; the connect time bounds their number
constexpr seconds kTickAfter(1);           // of silence; a tenth of the time after which the peer gives up
constexpr seconds kDrainAtMost(10);        // for what is queued when the owner closes: 100 MB at 80 Mbit/s
constexpr seconds kSampleEvery(1);         // socket counters, so that a lost connection leaves fresh figures
constexpr uint32_t kNonfiniteFlag = 1;

Frame HeaderOf(const LinkFrame& frame, const StreamIdentity& identity) {
  Frame header;
  header.set_sequence(frame.sequence);
  header.set_kind(static_cast<FrameKindCode>(frame.kind));
  header.set_n(frame.n);
  header.set_evaluation(frame.evaluation);
  header.set_epoch(identity.epoch);
  header.set_incarnation(identity.sender_incarnation);
  header.set_flags(frame.nonfinite ? kNonfiniteFlag : 0);
  if (frame.kind == FrameKind::kPiece) {
    header.set_n(frame.piece.round);
    header.set_evaluation(frame.piece.attempt);
    AveragingPiece* const piece = header.mutable_piece();
    piece->set_shard(frame.piece.shard);
    piece->set_phase(static_cast<uint32_t>(frame.piece.phase));
    piece->set_chunk(frame.piece.chunk);
    piece->set_first(frame.piece.first);
  }
  return header;
}

}  // namespace

bool GrpcClientSet::CallStarts() {
  std::lock_guard<std::mutex> lock(mutex);
  if (stopping) return false;
  ++live_calls;
  return true;
}

void GrpcClientSet::CallEnds() {
  std::lock_guard<std::mutex> lock(mutex);
  --live_calls;
  calls_changed.notify_all();
}

void GrpcClientSet::Remove(uint64_t id) {
  std::shared_ptr<GrpcClientStream> dropped;  // destroyed outside of the lock
  std::lock_guard<std::mutex> lock(mutex);
  auto found = streams.find(id);
  if (found == streams.end()) return;
  dropped = std::move(found->second);
  streams.erase(found);
}

bool GrpcClientSet::Stopping() {
  std::lock_guard<std::mutex> lock(mutex);
  return stopping;
}

GrpcClientStream::GrpcClientStream(std::shared_ptr<GrpcClientSet> set, uint64_t id, Target target,
                                   SenderCallbacks callbacks)
    : set_(std::move(set)),
      id_(id),
      target_(std::move(target)),
      connect_deadline_(set_->loop->Now() + target_.connect),
      channel_(MakeChannel(target_.address, ChannelKind::kData)),
      stub_(std::make_unique<grpc::GenericStub>(channel_)),
      callbacks_(std::move(callbacks)),
      next_sequence_(target_.first_sequence) {}

std::string GrpcClientStream::PeerName() const {
  return absl::StrCat(DescribeStream(target_.identity), " to ", target_.address);
}

void GrpcClientStream::StartAttempt() {
  if (closed_ || !set_->CallStarts()) return;
  attempt_running_ = true;
  Frame hello;
  *hello.mutable_hello() = MakeHello(target_.identity, target_.first_sequence);
  auto* const call = new GrpcFrameCall(this);  // deletes itself
  {
    std::lock_guard<std::mutex> lock(mutex_);
    call_ = call;
    reads_ended_ = false;
    writing_ = true;
    frame_in_message_ = false;
  }
  call->Begin(stub_.get(), hello);
}

void GrpcClientStream::Send(LinkFrame frame) {
  bool room = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    room = queue_.size() < kMaxQueuedFrames;
    if (room) {
      frame.sequence = next_sequence_++;
      queue_.push_back(std::move(frame));
    }
  }
  if (room) {
    Pump();
  } else {
    FailWith(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxQueuedFrames, " frames wait to be sent; the window is not kept")));
  }
}

size_t GrpcClientStream::queued_frames() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size() + (frame_open_ ? 1 : 0);
}

LinkCounters GrpcClientStream::counters() {
  if (socket_ != nullptr) socket_->Sample();
  std::lock_guard<std::mutex> lock(mutex_);
  LinkCounters counters = counters_;
  if (socket_ != nullptr) counters.wire_bytes = socket_->sent();
  return counters;
}

// Starts the next message if none is on its way. The hold keeps the call alive between the lock and the write.
void GrpcClientStream::Pump() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (call_ == nullptr || reads_ended_ || writing_ || !accepted_ || half_closed_) return;
  if (!chunks_.done() || !queue_.empty()) {
    WriteNextChunk(std::move(lock));
    return;
  }
  GrpcFrameCall* const call = call_;
  if (closing_) {
    half_closed_ = true;
    call->AddHold();
    lock.unlock();
    call->HalfClose();
    call->RemoveHold();
  } else if (tick_due_) {
    tick_due_ = false;
    writing_ = true;
    frame_in_message_ = false;
    last_write_ = set_->loop->Now();
    Frame tick;
    tick.set_sequence(next_sequence_);
    call->AddHold();
    lock.unlock();
    call->Write({EncodeFrameHead(tick, 0), {}}, nullptr, false);
    call->RemoveHold();
  }
}

void GrpcClientStream::WriteNextChunk(std::unique_lock<std::mutex> lock) {
  if (chunks_.done()) {
    current_ = std::move(queue_.front());
    queue_.pop_front();
    const BufferRef& payload = current_.payload;
    chunks_ = FrameChunks(HeaderOf(current_, target_.identity),
                          payload == nullptr ? absl::Span<const uint8_t>() : payload->bytes());
  }
  GrpcFrameCall* const call = call_;
  const bool more_waits = !queue_.empty();
  writing_ = true;
  frame_in_message_ = true;
  frame_open_ = true;
  tick_due_ = false;
  last_write_ = set_->loop->Now();
  call->AddHold();
  lock.unlock();
  // Checksum and header outside of the lock; writing_ keeps everybody else away from chunks_ and current_.
  const FrameChunks::Chunk chunk = chunks_.Next();
  call->Write(chunk, current_.payload, more_waits || !chunks_.done());
  call->RemoveHold();
}

void GrpcClientStream::OnWritten(bool ok) {
  bool frame_sent = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    frame_sent = ok && frame_in_message_ && chunks_.done();
    frame_in_message_ = false;
    if (frame_sent) {
      frame_open_ = false;
      ++counters_.frames;
      counters_.payload_bytes += current_.payload == nullptr ? 0 : current_.payload->size();
      current_ = LinkFrame();
    }
  }
  if (frame_sent) {
    set_->loop->Post([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self != nullptr && !self->closed_ && self->callbacks_.on_sent && !self->set_->Stopping()) {
        self->callbacks_.on_sent();
      }
    });
  }
  if (ok) Pump();
}

void GrpcClientStream::OnControl(const LinkControl& control, const std::string& peer) {
  bool now_accepted = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_heard_ = set_->loop->Now();
    now_accepted = !accepted_ && control.accepted();
    if (now_accepted) accepted_ = true;
  }
  if (now_accepted) {
    set_->loop->Post([weak = weak_from_this(), peer] {
      if (const auto self = weak.lock()) self->OnAccepted(peer);
    });
    Pump();
  }
}

void GrpcClientStream::OnReadsEnded() {
  std::lock_guard<std::mutex> lock(mutex_);
  reads_ended_ = true;
}

void GrpcClientStream::OnEnding() {
  std::lock_guard<std::mutex> lock(mutex_);
  call_ = nullptr;
  reads_ended_ = true;
  writing_ = false;
}

std::function<void()> GrpcClientStream::OnEnded(const absl::Status& status) {
  // Behind the Post the loop may drop this object.
  const std::shared_ptr<GrpcClientSet> set = set_;
  set->loop->Post([weak = weak_from_this(), status] {
    if (const auto self = weak.lock()) self->OnAttemptEnded(status);
  });
  return [set] { set->CallEnds(); };
}

void GrpcClientStream::OnAccepted(const std::string& peer) {
  if (set_->Stopping()) return;
  if (socket_ == nullptr) socket_ = std::make_unique<SocketBytes>(peer);
  if (!closed_ && callbacks_.on_accepted) callbacks_.on_accepted();
}

void GrpcClientStream::OnAttemptEnded(const absl::Status& status) {
  attempt_running_ = false;
  if (set_->Stopping()) return;
  absl::Status verdict = status;
  bool again = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (own_verdict_) verdict = *own_verdict_;
    again = !closing_ && !own_verdict_ && !accepted_ && absl::IsUnavailable(status);
  }
  if (again && set_->loop->Now() + kRetryAfter < connect_deadline_) {
    set_->loop->PostAfter(kRetryAfter, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->StartAttempt();
    });
    return;
  }
  ReportClosed(verdict);
}

void GrpcClientStream::ReportClosed(const absl::Status& status) {
  const auto self = shared_from_this();
  set_->Remove(id_);
  if (closed_) return;
  closed_ = true;
  if (!callbacks_.on_closed) return;
  if (status.ok()) {
    callbacks_.on_closed(absl::UnavailableError(absl::StrCat(PeerName(), ": the receiver ended the stream")));
  } else {
    callbacks_.on_closed(absl::Status(status.code(), absl::StrCat(PeerName(), ": ", status.message())));
  }
}

// Ends the stream for a reason of ours.
void GrpcClientStream::FailWith(absl::Status status) {
  bool running = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (own_verdict_) return;
    own_verdict_ = status;
    running = call_ != nullptr;
    if (running) call_->Cancel();
  }
  if (!running) {
    set_->loop->Post([weak = weak_from_this(), status] {
      if (const auto self = weak.lock()) self->ReportClosed(status);
    });
  }
}

void GrpcClientStream::Tick(MonoTime now, bool we_slept) {
  absl::Status failure;
  bool drained_too_long = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (we_slept) last_heard_ = now;  // we were stopped, not the peer
    if (!accepted_) {
      if (now > connect_deadline_) {
        failure = absl::UnavailableError("no connection in time; is the peer running and its address reachable?");
      }
    } else if (now - last_heard_ > set_->silence) {
      failure = absl::UnavailableError(absl::StrCat(
          "the peer has been silent for ", std::chrono::duration_cast<seconds>(now - last_heard_).count(), " s"));
    } else if (!writing_ && now - last_write_ > kTickAfter) {
      tick_due_ = true;
    }
    drained_too_long = closing_ && now > closing_deadline_;
    if (drained_too_long && call_ != nullptr) call_->Cancel();
  }
  if (!failure.ok()) {
    FailWith(failure);
    return;
  }
  if (socket_ != nullptr && now - last_sample_ > kSampleEvery) {
    last_sample_ = now;
    socket_->Sample();
  }
  Pump();
}

void GrpcClientStream::Close() {
  closed_ = true;
  callbacks_ = {};
  BeginShutdown();
  if (!attempt_running_) set_->Remove(id_);
}

void GrpcClientStream::BeginShutdown() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!closing_) closing_deadline_ = set_->loop->Now() + kDrainAtMost;
    closing_ = true;
    if (!accepted_ && call_ != nullptr) call_->Cancel();
  }
  Pump();
}

void GrpcClientStream::Abort() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (call_ != nullptr) call_->Cancel();
}

}  // namespace stagecoach
