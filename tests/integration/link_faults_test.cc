// Peers that are broken, stale or hostile, over real gRPC: each is refused and counted, memory stays bounded, and the
// receiver lives. The peer is an ordinary generated protobuf client, which also shows that the wire is plain protobuf.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/grpc/channel_settings.h"
#include "common/hash.h"
#include "protos/link.grpc.pb.h"
#include "tests/support/link_ends.h"
#include "worker/link/hello.h"
#include "worker/link/link_probe.h"
#include "worker/tensor/frame_codec.h"

namespace stagecoach {
namespace {

constexpr size_t kTensorBytes = 2000;

// A sender made of generated code.
class PlainClient {
 public:
  explicit PlainClient(const std::string& address)
      : channel_(MakeChannel(address, ChannelKind::kData)), stub_(PeerLink::NewStub(channel_)) {
    context_.set_deadline(std::chrono::system_clock::now() + kTestDeadline);
    context_.set_wait_for_ready(true);  // a busy machine may take longer than one attempt to connect
    stream_ = stub_->Frames(&context_);
  }
  ~PlainClient() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }
  bool SayHello(const StreamIdentity& identity, uint64_t next_sequence = 0) {
    Frame frame;
    *frame.mutable_hello() = MakeHello(identity, next_sequence);
    return stream_->Write(frame);
  }
  bool WaitForAccepted() {
    LinkControl control;
    return stream_->Read(&control) && control.accepted();
  }
  bool Write(const Frame& frame) { return stream_->Write(frame); }
  // Reads until the receiver ends the stream.
  grpc::Status Finish() {
    LinkControl control;
    while (stream_->Read(&control)) {
    }
    finished_ = true;
    return stream_->Finish();
  }
  void CloseWriting() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<PeerLink::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<Frame, LinkControl>> stream_;
  bool finished_ = false;
};

Frame AFrame(uint64_t sequence, size_t bytes = kTensorBytes) {
  const StreamIdentity identity = AnIdentity();
  std::string payload(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<char>(i * 131 + i / 251 + sequence);
  Frame frame;
  frame.set_sequence(sequence);
  frame.set_kind(FRAME_KIND_ACTIVATION);
  frame.set_n(sequence);
  frame.set_epoch(identity.epoch);
  frame.set_incarnation(identity.sender_incarnation);
  frame.set_total(bytes);
  frame.set_crc32c(Crc32c({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}));
  frame.set_payload(payload);
  return frame;
}

template <typename Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kTestDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class LinkFaultsTest : public testing::Test {
 protected:
  LinkPair pair_{LinkKind::kGrpc};
  const ReceiveLimits limits_{kTensorBytes, 64, 0};
};

TEST_F(LinkFaultsTest, GeneratedClient_IsUnderstood) {
  ReceivedStream received(&pair_, AnIdentity(), 0, limits_);
  PlainClient client(pair_.address());
  ASSERT_TRUE(client.SayHello(AnIdentity()));
  ASSERT_TRUE(client.WaitForAccepted());
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(client.Write(AFrame(i)));
  ASSERT_TRUE(received.WaitForFrames(3));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsFilled(received.frames()[i].payload, kTensorBytes, i));
}

// A receiver made of generated code, for one stream.
class PlainService final : public PeerLink::Service {
 public:
  grpc::Status Frames(grpc::ServerContext*, grpc::ServerReaderWriter<LinkControl, Frame>* stream) override {
    Frame frame;
    if (!stream->Read(&frame) || !frame.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "no hello"};
    LinkControl control;
    control.set_accepted(true);
    stream->Write(control);
    while (stream->Read(&frame)) {
      std::lock_guard<std::mutex> lock(mutex_);
      frames_.push_back(frame);
      control.set_accepted(false);
      control.set_next_sequence(frame.sequence() + 1);
      stream->Write(control);
    }
    return grpc::Status::OK;
  }
  std::vector<Frame> frames() {
    std::lock_guard<std::mutex> lock(mutex_);
    return frames_;
  }

 private:
  std::mutex mutex_;
  std::vector<Frame> frames_;
};

TEST(LinkInteroperabilityTest, GeneratedServer_UnderstandsOurSender) {
  PlainService service;
  auto server = StartServer("127.0.0.1:0", ChannelKind::kData, 64 << 20, &service);
  ASSERT_TRUE(server.ok()) << server.status();
  {
    LinkPair pair(LinkKind::kGrpc);
    std::unique_ptr<FrameSender> sender;
    OnLoop(pair.sender_loop(), [&] {
      sender = pair.sender()->OpenSender("127.0.0.1:" + std::to_string(server->port), AnIdentity(), 0, 10, {});
      for (int i = 0; i < 3; ++i) {
        LinkFrame frame;
        frame.n = i;
        frame.payload = pair.Filled((size_t{1} << 20) + 100, i);
        sender->Send(std::move(frame));
      }
    });
    ASSERT_TRUE(Eventually([&] { return service.frames().size() == 6; }));
    OnLoop(pair.sender_loop(), [&] { sender.reset(); });
  }
  const std::vector<Frame> frames = service.frames();
  EXPECT_EQ(frames[0].payload().size(), size_t{1} << 20);
  EXPECT_EQ(frames[1].payload().size(), 100u);
  EXPECT_EQ(frames[5].offset(), uint64_t{1} << 20);
  EXPECT_EQ(frames[5].total(), (uint64_t{1} << 20) + 100);
  server->server->Shutdown();
}

TEST_F(LinkFaultsTest, BadFrames_AreRefusedWithTheirReason) {
  struct Case {
    const char* reason;
    grpc::StatusCode code;
    std::function<void(Frame*)> change;
  };
  const Case cases[] = {
      {"sequence_gap", grpc::StatusCode::FAILED_PRECONDITION, [](Frame* f) { f->set_sequence(2); }},
      {"size", grpc::StatusCode::INVALID_ARGUMENT, [](Frame* f) { f->set_total(uint64_t{1} << 50); }},
      {"over_limit", grpc::StatusCode::INVALID_ARGUMENT, [](Frame* f) { f->set_kind(FRAME_KIND_SCALAR); }},
      {"checksum", grpc::StatusCode::DATA_LOSS, [](Frame* f) { f->set_crc32c(f->crc32c() ^ 1); }},
      {"malformed", grpc::StatusCode::INVALID_ARGUMENT, [](Frame* f) { f->set_kind(static_cast<FrameKindCode>(50)); }},
  };
  for (const Case& bad : cases) {
    ReceivedStream received(&pair_, AnIdentity(), 0, limits_);
    PlainClient client(pair_.address());
    ASSERT_TRUE(client.SayHello(AnIdentity()));
    ASSERT_TRUE(client.WaitForAccepted());
    Frame frame = AFrame(0);
    bad.change(&frame);
    client.Write(frame);
    EXPECT_EQ(client.Finish().error_code(), bad.code) << bad.reason;
    ASSERT_TRUE(received.WaitForClosed());
    EXPECT_EQ(pair_.rejections()[bad.reason], 1u) << bad.reason;
    EXPECT_TRUE(received.frames().empty());
  }
  EXPECT_EQ(pair_.receive_pool()->bytes_in_use(), 0u);
}

TEST_F(LinkFaultsTest, StaleAndDuplicatedFrames_AreDroppedAndTheStreamGoesOn) {
  ReceivedStream received(&pair_, AnIdentity(), 0, limits_);
  PlainClient client(pair_.address());
  ASSERT_TRUE(client.SayHello(AnIdentity()));
  ASSERT_TRUE(client.WaitForAccepted());
  Frame stale = AFrame(0);
  stale.set_epoch(0);
  client.Write(stale);
  stale = AFrame(0);
  stale.set_incarnation(1);
  client.Write(stale);
  client.Write(AFrame(0));
  client.Write(AFrame(0));
  client.Write(AFrame(1));
  ASSERT_TRUE(received.WaitForFrames(2));
  auto rejections = pair_.rejections();
  EXPECT_EQ(rejections["epoch"], 1u);
  EXPECT_EQ(rejections["incarnation"], 1u);
  EXPECT_EQ(rejections["duplicate"], 1u);
}

TEST_F(LinkFaultsTest, NoHelloFirst_IsRefused) {
  PlainClient client(pair_.address());
  client.Write(AFrame(0));
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(pair_.rejections()["malformed"], 1u);
}

TEST_F(LinkFaultsTest, MessageAboveTheLimit_IsRefusedByGrpc) {
  ReceivedStream received(&pair_, AnIdentity(), 0, limits_);
  auto channel = grpc::CreateChannel(pair_.address(), grpc::InsecureChannelCredentials());  // no limit on sending
  const auto stub = PeerLink::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTestDeadline);
  auto stream = stub->Frames(&context);
  Frame hello;
  *hello.mutable_hello() = MakeHello(AnIdentity(), 0);
  ASSERT_TRUE(stream->Write(hello));
  LinkControl control;
  ASSERT_TRUE(stream->Read(&control));
  stream->Write(AFrame(0, 8 << 20));
  while (stream->Read(&control)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  ASSERT_TRUE(received.WaitForClosed());
  EXPECT_EQ(pair_.receive_pool()->bytes_in_use(), 0u);
}

TEST_F(LinkFaultsTest, DisconnectInTheMiddleOfAFrame_IsCountedAndReturnsTheMemory) {
  const size_t bytes = (size_t{1} << 20) + 7;
  {
    ReceivedStream received(&pair_, AnIdentity(), 0, {bytes, 64, 0});
    PlainClient client(pair_.address());
    ASSERT_TRUE(client.SayHello(AnIdentity()));
    ASSERT_TRUE(client.WaitForAccepted());
    Frame first = AFrame(0, size_t{1} << 20);
    first.set_total(bytes);
    ASSERT_TRUE(client.Write(first));
    ASSERT_TRUE(Eventually([&] { return pair_.receive_pool()->bytes_in_use() > 0; }));
    client.Cancel();
    ASSERT_TRUE(received.WaitForClosed());
    EXPECT_TRUE(absl::IsUnavailable(received.closed())) << received.closed();
    EXPECT_TRUE(Eventually([&] { return pair_.rejections()["truncated"] == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return pair_.receive_pool()->bytes_in_use() == 0; }));
}

TEST(LinkSilenceTest, PeerThatStalls_IsUnavailable) {
  LinkPair pair(LinkKind::kGrpc, [](GrpcLinkOptions* options) {
    options->silence_seconds = 0.6;
    options->hello_wait_seconds = 0.6;
  });
  ReceivedStream received(&pair, AnIdentity(), 0, {kTensorBytes, 64, 0});
  PlainClient stalls(pair.address());
  ASSERT_TRUE(stalls.SayHello(AnIdentity()));
  ASSERT_TRUE(received.WaitForClosed());
  EXPECT_TRUE(absl::IsUnavailable(received.closed())) << received.closed();
  EXPECT_EQ(pair.rejections()["silent"], 1u);
  PlainClient nobody(pair.address());  // and one that nobody waits for
  ASSERT_TRUE(nobody.SayHello(WithCut(AnIdentity(), 40)));
  EXPECT_EQ(nobody.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(pair.rejections()["run"], 1u);
}

TEST(LinkSilenceTest, IdleStream_StaysOpen) {
  LinkPair pair(LinkKind::kGrpc, [](GrpcLinkOptions* options) { options->silence_seconds = 2; });
  ReceivedStream received(&pair, AnIdentity(), 0, {kTensorBytes, 64, 0});
  SendingStream sending(&pair, AnIdentity(), 0);
  ASSERT_TRUE(sending.WaitForAccepted());
  std::promise<void> passed;  // longer than the silence allowed: both ends give signs of life
  pair.sender_loop()->PostAfter(std::chrono::seconds(4), [&] { passed.set_value(); });
  passed.get_future().wait();
  EXPECT_TRUE(sending.closed().ok()) << sending.closed();
  sending.Send(FrameKind::kActivation, 0, pair.Filled(kTensorBytes, 0));
  EXPECT_TRUE(received.WaitForFrames(1));
}

TEST(LinkFloodTest, FramesThatNobodyReleases_StayWithinThePool) {
  constexpr size_t kBytes = size_t{1} << 20;
  constexpr int kFrames = 40;
  const auto pool = HostBufferPool::Create(4 * kBytes);
  LinkPair pair(LinkKind::kGrpc, [&](GrpcLinkOptions* options) { options->pool = pool; });
  auto received = std::make_unique<ReceivedStream>(&pair, AnIdentity(), 0, ReceiveLimits{kBytes, 64, 0});
  SendingStream sending(&pair, AnIdentity(), 0);
  ASSERT_TRUE(sending.WaitForAccepted());
  for (int i = 0; i < kFrames; ++i) sending.Send(FrameKind::kActivation, i, pair.Filled(kBytes, i));
  ASSERT_TRUE(received->WaitForFrames(4));
  EXPECT_EQ(received->frames().size(), 4u);
  EXPECT_LE(pool->bytes_in_use(), 4 * kBytes);
  EXPECT_GT(sending.queued_frames(), 0u);  // held back, not swallowed
  EXPECT_TRUE(received->closed().ok());
  received.reset();
  EXPECT_TRUE(sending.WaitForClosed());
}

TEST(LinkFloodTest, StreamsThatNobodyWaitsFor_AreLimited) {
  LinkPair pair(LinkKind::kGrpc);
  std::vector<std::unique_ptr<PlainClient>> clients;
  for (uint32_t i = 0; i < 70; ++i) {
    clients.push_back(std::make_unique<PlainClient>(pair.address()));
    // Those above the limit may be refused before their Write returns.
    const bool written = clients.back()->SayHello(WithCut(AnIdentity(), 1000 + i));
    ASSERT_TRUE(written || i >= 64) << i;
  }
  EXPECT_TRUE(Eventually([&] { return pair.rejections()["over_limit"] == 6; }));
  ReceivedStream received(&pair, WithCut(AnIdentity(), 1000), 0, {kTensorBytes, 64, 0});
  EXPECT_TRUE(received.WaitForOpen());
}

TEST(LinkMeterTest, WireBytes_AreWithinThreePercentOfThePayload) {
  constexpr size_t kBytes = 2048 * 34;  // int8 coordinates, k = 32
  LinkPair pair(LinkKind::kGrpc);
  ReceivedStream received(&pair, AnIdentity(), 0, {kBytes, 64, 0});
  SendingStream sending(&pair, AnIdentity(), 0);
  constexpr int kFrames = 100;
  for (int i = 0; i < kFrames; ++i) sending.Send(FrameKind::kActivation, i, pair.Filled(kBytes, i));
  ASSERT_TRUE(received.WaitForFrames(kFrames));
  const LinkCounters sent = sending.counters(), got = received.counters();
  EXPECT_EQ(sent.payload_bytes, kFrames * kBytes);
  EXPECT_GT(sent.wire_bytes, kFrames * kBytes);
  EXPECT_LT(sent.wire_bytes, 1.03 * kFrames * kBytes);
  EXPECT_GT(got.wire_bytes, kFrames * kBytes);
  EXPECT_LT(got.wire_bytes, 1.03 * kFrames * kBytes);
}

TEST(LinkProbeTest, Loopback_IsMeasured) {
  LinkPair pair(LinkKind::kGrpc);
  const auto result = ProbeLink(pair.address());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->rtt_seconds, 0);
  EXPECT_LT(result->rtt_seconds, 0.5);
  EXPECT_GT(result->bytes_per_second, 1e6);
}

TEST(LinkProbeTest, NobodyThere_Unavailable) {
  LinkProbeOptions options;
  options.connect_seconds = 0.3;
  const auto result = ProbeLink("127.0.0.1:1", options);
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
}

}  // namespace
}  // namespace stagecoach
