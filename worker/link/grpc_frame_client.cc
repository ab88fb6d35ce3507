#include "worker/link/grpc_frame_client.h"

#include <chrono>
#include <utility>
#include <vector>

#include "worker/link/grpc_client_stream.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;

constexpr seconds kDrainInShutdown(2);    // for frames handed over just before the end of the process
constexpr seconds kCancelInShutdown(10);  // gRPC answers a cancellation in milliseconds

class Sender final : public FrameSender {
 public:
  explicit Sender(std::shared_ptr<GrpcClientStream> stream) : stream_(std::move(stream)) {}
  ~Sender() override { stream_->Close(); }
  void Send(LinkFrame frame) override { stream_->Send(std::move(frame)); }
  size_t queued_frames() const override { return stream_->queued_frames(); }
  LinkCounters counters() const override { return stream_->counters(); }

 private:
  const std::shared_ptr<GrpcClientStream> stream_;
};

std::vector<std::shared_ptr<GrpcClientStream>> StreamsOf(GrpcClientSet* set) {
  std::vector<std::shared_ptr<GrpcClientStream>> streams;
  std::lock_guard<std::mutex> lock(set->mutex);
  for (const auto& [id, stream] : set->streams) streams.push_back(stream);
  return streams;
}

}  // namespace

GrpcFrameClients::GrpcFrameClients(EventLoop* loop, double silence_seconds) : set_(std::make_shared<GrpcClientSet>()) {
  set_->loop = loop;
  set_->silence = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(silence_seconds));
}

GrpcFrameClients::~GrpcFrameClients() = default;

std::unique_ptr<FrameSender> GrpcFrameClients::Open(const std::string& address, const StreamIdentity& identity,
                                                    uint64_t first_sequence, double connect_seconds,
                                                    SenderCallbacks callbacks) {
  const auto connect = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(connect_seconds));
  std::shared_ptr<GrpcClientStream> stream;
  {
    std::lock_guard<std::mutex> lock(set_->mutex);
    const uint64_t id = set_->next_id++;
    stream = std::make_shared<GrpcClientStream>(
        set_, id, GrpcClientStream::Target{address, identity, first_sequence, connect}, std::move(callbacks));
    set_->streams[id] = stream;
  }
  stream->StartAttempt();
  return std::make_unique<Sender>(std::move(stream));
}

void GrpcFrameClients::Tick() {
  const MonoTime now = set_->loop->Now();
  bool we_slept = false;
  {
    std::lock_guard<std::mutex> lock(set_->mutex);
    if (set_->stopping) return;
    we_slept = set_->last_tick != MonoTime{} && now - set_->last_tick > seconds(2);
    set_->last_tick = now;
  }
  for (const auto& stream : StreamsOf(set_.get())) stream->Tick(now, we_slept);
}

void GrpcFrameClients::Shutdown() {
  {
    std::lock_guard<std::mutex> lock(set_->mutex);
    set_->stopping = true;
  }
  for (const auto& stream : StreamsOf(set_.get())) stream->BeginShutdown();
  const auto all_ended = [this] { return set_->live_calls == 0; };
  {
    std::unique_lock<std::mutex> lock(set_->mutex);
    set_->calls_changed.wait_for(lock, kDrainInShutdown, all_ended);
  }
  for (const auto& stream : StreamsOf(set_.get())) stream->Abort();
  std::map<uint64_t, std::shared_ptr<GrpcClientStream>> ended;  // channels die here, not under the lock
  std::unique_lock<std::mutex> lock(set_->mutex);
  // A call that does not end keeps its stream: rather a leak at the end of a process than a call into freed memory.
  if (set_->calls_changed.wait_for(lock, kCancelInShutdown, all_ended)) ended.swap(set_->streams);
  lock.unlock();
}

}  // namespace stagecoach
