// One suite for every implementation of PeerLink: what the two ends of a stream may rely on.
#include "worker/link/peer_link.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/link_ends.h"

namespace stagecoach {
namespace {

class PeerLinkTest : public testing::TestWithParam<LinkKind> {
 protected:
  LinkPair pair_{GetParam()};
};

TEST_P(PeerLinkTest, FramesOfEveryKind_ArriveInOrderAndUnchanged) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {1000, 64, 0});
  SendingStream sending(&pair_, identity, 0);
  sending.Send(FrameKind::kActivation, 7, pair_.Filled(1000, 1));
  sending.Send(FrameKind::kEvaluation, 8, pair_.Filled(1000, 2));
  sending.Send(FrameKind::kScalar, 3, pair_.Filled(34, 3));
  sending.Send(FrameKind::kStop, 9, nullptr);
  ASSERT_TRUE(received.WaitForFrames(4));
  EXPECT_TRUE(sending.WaitForSent(4));
  const std::vector<LinkFrame> frames = received.frames();
  EXPECT_EQ(frames[0].kind, FrameKind::kActivation);
  EXPECT_EQ(frames[1].kind, FrameKind::kEvaluation);
  EXPECT_EQ(frames[2].kind, FrameKind::kScalar);
  EXPECT_EQ(frames[3].kind, FrameKind::kStop);
  EXPECT_EQ(frames[3].n, 9u);
  for (size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(frames[i].sequence, i);
  EXPECT_TRUE(IsFilled(frames[0].payload, 1000, 1));
  EXPECT_TRUE(IsFilled(frames[1].payload, 1000, 2));
  EXPECT_TRUE(IsFilled(frames[2].payload, 34, 3));
  EXPECT_TRUE(frames[3].payload == nullptr || frames[3].payload->size() == 0);
  EXPECT_TRUE(sending.accepted());
  EXPECT_EQ(sending.queued_frames(), 0u);
  EXPECT_EQ(received.counters().frames, 4u);
  EXPECT_EQ(received.counters().payload_bytes, 2034u);
  EXPECT_EQ(sending.counters().payload_bytes, 2034u);
}

TEST_P(PeerLinkTest, Pieces_ArriveWithTheirHeaders) {
  StreamIdentity identity = AnIdentity();
  identity.direction = LinkDirection::kAveraging;
  ReceivedStream received(&pair_, identity, 0, {0, 0, 64, 65536});
  SendingStream sending(&pair_, identity, 0);
  sending.SendPiece({5, 2, 3, identity.epoch, PiecePhase::kGather, 1, 1u << 20}, pair_.Filled(65536, 1));
  sending.SendPiece({6, 0, 0, identity.epoch, PiecePhase::kReduce, 0, 0}, pair_.Filled(1, 2));
  ASSERT_TRUE(received.WaitForFrames(2));
  const std::vector<LinkFrame> frames = received.frames();
  EXPECT_EQ(frames[0].kind, FrameKind::kPiece);
  const PieceHeader& piece = frames[0].piece;
  EXPECT_EQ(piece.round, 5u);
  EXPECT_EQ(piece.attempt, 2u);
  EXPECT_EQ(piece.shard, 3u);
  EXPECT_EQ(piece.epoch, identity.epoch);
  EXPECT_EQ(piece.phase, PiecePhase::kGather);
  EXPECT_EQ(piece.chunk, 1u);
  EXPECT_EQ(piece.first, 1u << 20);
  EXPECT_TRUE(IsFilled(frames[0].payload, 65536, 1));
  EXPECT_EQ(frames[1].piece.round, 6u);
  EXPECT_EQ(frames[1].piece.phase, PiecePhase::kReduce);
}

TEST_P(PeerLinkTest, PiecesAndFrames_DoNotMixAndLargePiecesAreRefused) {
  for (int fault = 0; fault < 3; ++fault) {
    const StreamIdentity identity = WithCut(AnIdentity(), 10 + static_cast<uint32_t>(fault));
    const ReceiveLimits pieces{0, 0, 64, 1000}, frames{100, 64, 0};
    ReceivedStream received(&pair_, identity, 0, fault == 0 ? frames : pieces);
    SendingStream sending(&pair_, identity, 0);
    if (fault == 0) sending.SendPiece({}, pair_.Filled(100, 0));
    if (fault == 1) sending.SendPiece({}, pair_.Filled(1001, 0));
    if (fault == 2) sending.Send(FrameKind::kStop, 0, nullptr);
    ASSERT_TRUE(received.WaitForClosed()) << fault;
    EXPECT_TRUE(absl::IsInvalidArgument(received.closed())) << received.closed();
    EXPECT_TRUE(received.frames().empty());
  }
}

TEST_P(PeerLinkTest, MorePiecesThanHeld_WaitAndLoseNothing) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {0, 0, 4, 65536});
  SendingStream sending(&pair_, identity, 0);
  constexpr size_t kPieces = 300;
  for (size_t i = 0; i < kPieces; ++i) sending.SendPiece({i, 0, 0, 1}, pair_.Filled(65536, static_cast<int>(i)));
  ASSERT_TRUE(received.WaitForFrames(4));
  if (GetParam() == LinkKind::kGrpc) {
    // The receiver holds its limit, and gRPC the message that it had begun to read.
    EXPECT_LE(pair_.receive_pool()->bytes_in_use(), 5u * 65536);
  }
  for (size_t seen = 4; seen < kPieces;) {
    received.ReleasePayloads();
    ASSERT_TRUE(received.WaitForFrames(seen + 1));
    seen = received.frames().size();
  }
  for (size_t i = 0; i < kPieces; ++i) EXPECT_EQ(received.frames()[i].piece.round, i);
}

TEST_P(PeerLinkTest, FramesOfSeveralChunks_ArriveWhole) {
  const size_t bytes = 3 * (size_t{1} << 20) + 4711;
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {bytes, 64, 0});
  SendingStream sending(&pair_, identity, 0);
  constexpr int kFrames = 5;
  for (int i = 0; i < kFrames; ++i) sending.Send(FrameKind::kActivation, i, pair_.Filled(bytes, i));
  ASSERT_TRUE(received.WaitForFrames(kFrames));
  for (int i = 0; i < kFrames; ++i) EXPECT_TRUE(IsFilled(received.frames()[i].payload, bytes, i)) << i;
}

TEST_P(PeerLinkTest, ManySmallFrames_KeepTheirOrder) {
  StreamIdentity identity = AnIdentity();
  identity.direction = LinkDirection::kBackward;
  ReceivedStream received(&pair_, identity, 0, {64, 64, 0});
  SendingStream sending(&pair_, identity, 0);
  constexpr int kFrames = 1000;
  for (int i = 0; i < kFrames; ++i) {
    sending.Send(i % 3 == 0 ? FrameKind::kDone : FrameKind::kGradient, i, i % 3 == 0 ? nullptr : pair_.Filled(64, i));
  }
  ASSERT_TRUE(received.WaitForFrames(kFrames));
  for (int i = 0; i < kFrames; ++i) EXPECT_EQ(received.frames()[i].n, static_cast<uint64_t>(i));
}

TEST_P(PeerLinkTest, SenderBeforeReceiver_Waits) {
  const StreamIdentity identity = AnIdentity();
  SendingStream sending(&pair_, identity, 0);
  sending.Send(FrameKind::kActivation, 0, pair_.Filled(100, 5));
  ReceivedStream other(&pair_, WithCut(identity, identity.cut + 1), 0, {100, 64, 0});
  EXPECT_FALSE(sending.accepted());
  ReceivedStream received(&pair_, identity, 0, {100, 64, 0});
  ASSERT_TRUE(received.WaitForFrames(1));
  EXPECT_TRUE(IsFilled(received.frames()[0].payload, 100, 5));
  EXPECT_TRUE(other.frames().empty());
}

TEST_P(PeerLinkTest, FramesBelowTheExpected_AreDroppedAndCounted) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 3, {100, 64, 0});
  SendingStream sending(&pair_, identity, 0);
  for (int i = 0; i < 5; ++i) sending.Send(FrameKind::kActivation, i, pair_.Filled(100, i));
  ASSERT_TRUE(received.WaitForFrames(2));
  EXPECT_EQ(received.frames()[0].sequence, 3u);
  EXPECT_EQ(received.frames()[1].sequence, 4u);
  EXPECT_EQ(pair_.rejections()["duplicate"], 3u);
}

TEST_P(PeerLinkTest, SenderThatStartsBehindAGap_IsRefused) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 3, {100, 64, 0});
  SendingStream sending(&pair_, identity, 4);
  ASSERT_TRUE(sending.WaitForClosed());
  EXPECT_TRUE(absl::IsFailedPrecondition(sending.closed())) << sending.closed();
  EXPECT_EQ(pair_.rejections()["sequence_gap"], 1u);
}

TEST_P(PeerLinkTest, StaleEpoch_IsRefusedAndTheReceiverWaitsOn) {
  StreamIdentity identity = AnIdentity();
  identity.epoch = 5;
  ReceivedStream received(&pair_, identity, 0, {100, 64, 0});
  StreamIdentity stale = identity;
  stale.epoch = 4;
  SendingStream old_sender(&pair_, stale, 0);
  ASSERT_TRUE(old_sender.WaitForClosed());
  EXPECT_TRUE(absl::IsFailedPrecondition(old_sender.closed())) << old_sender.closed();
  EXPECT_EQ(pair_.rejections()["epoch"], 1u);
  SendingStream sending(&pair_, identity, 0);
  sending.Send(FrameKind::kActivation, 0, pair_.Filled(100, 1));
  EXPECT_TRUE(received.WaitForFrames(1));
}

TEST_P(PeerLinkTest, OtherIncarnation_IsAborted) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {100, 64, 0});
  StreamIdentity stale = identity;
  stale.sender_incarnation += 1;
  SendingStream sending(&pair_, stale, 0);
  ASSERT_TRUE(sending.WaitForClosed());
  EXPECT_TRUE(absl::IsAborted(sending.closed())) << sending.closed();
  EXPECT_EQ(pair_.rejections()["incarnation"], 1u);
}

TEST_P(PeerLinkTest, OtherShapeOrFormat_IsRefused) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {100, 64, 0});
  StreamIdentity other = identity;
  other.rows += 1;
  SendingStream shape(&pair_, other, 0);
  ASSERT_TRUE(shape.WaitForClosed());
  EXPECT_TRUE(absl::IsInvalidArgument(shape.closed())) << shape.closed();
  other = identity;
  other.wire_format += 1;
  SendingStream format(&pair_, other, 0);
  ASSERT_TRUE(format.WaitForClosed());
  EXPECT_TRUE(absl::IsInvalidArgument(format.closed())) << format.closed();
  EXPECT_EQ(pair_.rejections()["shape"], 1u);
  EXPECT_EQ(pair_.rejections()["codec"], 1u);
}

TEST_P(PeerLinkTest, TensorOfAnotherSize_ClosesBothEnds) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {100, 64, 0});
  SendingStream sending(&pair_, identity, 0);
  sending.Send(FrameKind::kActivation, 0, pair_.Filled(101, 0));
  ASSERT_TRUE(received.WaitForClosed());
  ASSERT_TRUE(sending.WaitForClosed());
  EXPECT_TRUE(absl::IsInvalidArgument(received.closed())) << received.closed();
  EXPECT_TRUE(absl::IsInvalidArgument(sending.closed())) << sending.closed();
  EXPECT_EQ(pair_.rejections()["size"], 1u);
}

TEST_P(PeerLinkTest, MoreFramesThanTheWindow_ClosesTheStream) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {100, 64, 4});  // keeps every payload
  SendingStream sending(&pair_, identity, 0);
  for (int i = 0; i < 6; ++i) sending.Send(FrameKind::kActivation, i, pair_.Filled(100, i));
  ASSERT_TRUE(received.WaitForClosed());
  EXPECT_TRUE(absl::IsResourceExhausted(received.closed())) << received.closed();
  EXPECT_EQ(received.frames().size(), 4u);
  EXPECT_EQ(pair_.rejections()["window_exceeded"], 1u);
}

TEST_P(PeerLinkTest, SenderCloses_WhatItQueuedStillArrives) {
  const StreamIdentity identity = AnIdentity();
  ReceivedStream received(&pair_, identity, 0, {1 << 20, 64, 0});
  {
    SendingStream sending(&pair_, identity, 0);
    ASSERT_TRUE(sending.WaitForAccepted());
    for (int i = 0; i < 8; ++i) sending.Send(FrameKind::kActivation, i, pair_.Filled(1 << 20, i));
  }
  EXPECT_TRUE(received.WaitForFrames(8));
  ASSERT_TRUE(received.WaitForClosed());
  EXPECT_TRUE(absl::IsUnavailable(received.closed())) << received.closed();
}

TEST_P(PeerLinkTest, ReceiverCloses_SenderLearnsIt) {
  const StreamIdentity identity = AnIdentity();
  auto received = std::make_unique<ReceivedStream>(&pair_, identity, 0, ReceiveLimits{100, 64, 0});
  SendingStream sending(&pair_, identity, 0);
  ASSERT_TRUE(sending.WaitForAccepted());
  received.reset();
  ASSERT_TRUE(sending.WaitForClosed());
  EXPECT_TRUE(absl::IsUnavailable(sending.closed())) << sending.closed();
}

TEST_P(PeerLinkTest, NobodyReceives_UnavailableInTime) {
  SendingStream sending(&pair_, AnIdentity(), 0, 0.5);
  ASSERT_TRUE(sending.WaitForClosed());
  EXPECT_TRUE(absl::IsUnavailable(sending.closed())) << sending.closed();
}

INSTANTIATE_TEST_SUITE_P(Links, PeerLinkTest, testing::Values(LinkKind::kInProcess, LinkKind::kGrpc),
                         [](const auto& kind) { return kind.param == LinkKind::kGrpc ? "Grpc" : "InProcess"; });

}  // namespace
}  // namespace stagecoach
