#include "worker/link/grpc_frame_server.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/grpc/channel_settings.h"
#include "worker/link/grpc_server_set.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;

constexpr seconds kShutdownDeadline(5);  // then gRPC cancels what is left
constexpr seconds kSampleEvery(1);

class Service final
    : public PeerLink::WithRawCallbackMethod_Frames<PeerLink::WithCallbackMethod_Echo<PeerLink::Service>> {
 public:
  explicit Service(std::shared_ptr<GrpcServerSet> set) : set_(std::move(set)) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Frames(grpc::CallbackServerContext* context) override {
    auto* const call = new GrpcReceiveCall(set_, context);  // deletes itself
    call->Begin();
    return call;
  }

  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const EchoRequest* request,
                                 EchoReply* reply) override {
    reply->set_received_bytes(request->payload().size());
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::shared_ptr<GrpcServerSet> set_;
};

class Receiver final : public FrameReceiver {
 public:
  Receiver(std::shared_ptr<GrpcServerSet> set, std::shared_ptr<GrpcReceiver> receiver)
      : set_(std::move(set)), receiver_(std::move(receiver)) {}

  ~Receiver() override {
    receiver_->closed = true;
    receiver_->callbacks = {};
    std::shared_ptr<GrpcCallGate> gate;
    {
      std::lock_guard<std::mutex> lock(set_->mutex);
      set_->receivers.erase(receiver_->id);
      gate = receiver_->gate;
    }
    if (gate == nullptr) return;
    std::lock_guard<std::mutex> lock(gate->mutex);
    if (gate->call != nullptr) gate->call->FinishWith(absl::UnavailableError("the receiver closed the stream"));
  }

  LinkCounters counters() const override {
    LinkCounters counters;
    counters.frames = receiver_->frames.load();
    counters.payload_bytes = receiver_->payload_bytes.load();
    if (receiver_->socket != nullptr) {
      receiver_->socket->Sample();
      counters.wire_bytes = receiver_->socket->received();
    }
    return counters;
  }

 private:
  const std::shared_ptr<GrpcServerSet> set_;
  const std::shared_ptr<GrpcReceiver> receiver_;
};

}  // namespace

GrpcFrameServer::GrpcFrameServer(std::shared_ptr<GrpcServerSet> set)
    : set_(std::move(set)), service_(std::make_unique<Service>(set_)) {}

GrpcFrameServer::~GrpcFrameServer() { Shutdown(); }

const RejectCounts& GrpcFrameServer::rejects() const { return set_->rejects; }

absl::StatusOr<std::unique_ptr<GrpcFrameServer>> GrpcFrameServer::Start(GrpcFrameServerOptions options) {
  auto set = std::make_shared<GrpcServerSet>();
  set->options = std::move(options);
  std::unique_ptr<GrpcFrameServer> frame_server(new GrpcFrameServer(set));
  auto started =
      StartServer(set->options.listen, ChannelKind::kData, set->options.quota_bytes, frame_server->service_.get());
  if (!started.ok()) return started.status();
  frame_server->server_ = std::move(started->server);
  frame_server->port_ = started->port;
  return frame_server;
}

std::unique_ptr<FrameReceiver> GrpcFrameServer::Open(const StreamIdentity& identity, uint64_t first_sequence,
                                                     const ReceiveLimits& limits, ReceiverCallbacks callbacks) {
  std::shared_ptr<GrpcReceiver> receiver;
  {
    std::lock_guard<std::mutex> lock(set_->mutex);
    receiver = std::make_shared<GrpcReceiver>(set_->next_id++, identity, first_sequence, limits, std::move(callbacks),
                                              set_->options.pool);
    set_->receivers[receiver->id] = receiver;
  }
  set_->OfferWaiting(receiver);
  return std::make_unique<Receiver>(set_, std::move(receiver));
}

void GrpcFrameServer::Tick() {
  const MonoTime now = set_->options.loop->Now();
  bool we_slept = false;
  std::vector<std::shared_ptr<GrpcCallGate>> calls;
  std::vector<std::shared_ptr<GrpcReceiver>> receivers;
  {
    std::lock_guard<std::mutex> lock(set_->mutex);
    if (set_->stopping) return;
    we_slept = set_->last_tick != MonoTime{} && now - set_->last_tick > seconds(2);
    set_->last_tick = now;
    calls.assign(set_->calls.begin(), set_->calls.end());
    for (const auto& [id, receiver] : set_->receivers) receivers.push_back(receiver);
  }
  for (const auto& gate : calls) {
    std::lock_guard<std::mutex> lock(gate->mutex);
    if (gate->call != nullptr) gate->call->Tick(now, we_slept);
  }
  for (const auto& receiver : receivers) {
    if (receiver->socket == nullptr || now - receiver->last_sample < kSampleEvery) continue;
    receiver->last_sample = now;
    receiver->socket->Sample();
  }
}

void GrpcFrameServer::Shutdown() {
  std::vector<std::shared_ptr<GrpcCallGate>> calls;
  {
    std::lock_guard<std::mutex> lock(set_->mutex);
    set_->stopping = true;
    calls.assign(set_->calls.begin(), set_->calls.end());
  }
  if (server_ == nullptr) return;
  for (const auto& gate : calls) {
    std::lock_guard<std::mutex> lock(gate->mutex);
    if (gate->call != nullptr) gate->call->FinishWith(absl::UnavailableError("the receiver shuts down"));
  }
  server_->Shutdown(std::chrono::system_clock::now() + kShutdownDeadline);
  server_->Wait();
  server_.reset();
}

}  // namespace stagecoach
