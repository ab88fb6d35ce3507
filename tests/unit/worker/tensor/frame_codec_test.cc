#include "worker/tensor/frame_codec.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "common/hash.h"
#include "worker/tensor/frame_assembler.h"

namespace stagecoach {
namespace {

using google::protobuf::io::ArrayInputStream;
using Outcome = FrameAssembler::Outcome;

constexpr int kPieceBytes = 1000;  // a received message comes in pieces

FrameExpectation AnExpectation() { return {3, 77, 0, 3000, 64}; }

Frame AHeader(uint64_t sequence, FrameKindCode kind = FRAME_KIND_ACTIVATION) {
  Frame header;
  header.set_sequence(sequence);
  header.set_kind(kind);
  header.set_n(sequence + 100);
  header.set_epoch(3);
  header.set_incarnation(77);
  return header;
}

std::vector<uint8_t> Payload(size_t bytes) {
  std::vector<uint8_t> payload(bytes);
  std::iota(payload.begin(), payload.end(), uint8_t{1});
  return payload;
}

std::string Whole(FrameChunks* chunks) {
  const FrameChunks::Chunk chunk = chunks->Next();
  return chunk.head + std::string(reinterpret_cast<const char*>(chunk.payload.data()), chunk.payload.size());
}

std::string OneMessage(const Frame& header, const std::vector<uint8_t>& payload) {
  FrameChunks chunks(header, payload);
  return Whole(&chunks);
}

struct Fixture {
  explicit Fixture(FrameExpectation expectation = AnExpectation(), size_t pool_bytes = 1 << 20)
      : pool(HostBufferPool::Create(pool_bytes)), assembler(expectation, pool) {}
  Outcome Accept(const std::string& message) {
    return assembler.Accept(
        [&] {
          return std::make_unique<ArrayInputStream>(message.data(), static_cast<int>(message.size()), kPieceBytes);
        },
        message.size());
  }
  std::shared_ptr<HostBufferPool> pool;
  FrameAssembler assembler;
};

TEST(FrameCodecTest, Head_IsOrdinaryProtobuf) {
  const std::vector<uint8_t> payload = Payload(3000);
  Frame parsed;
  ASSERT_TRUE(parsed.ParseFromString(OneMessage(AHeader(5), payload)));
  EXPECT_EQ(parsed.sequence(), 5u);
  EXPECT_EQ(parsed.total(), 3000u);
  EXPECT_EQ(parsed.payload(), std::string(payload.begin(), payload.end()));
  EXPECT_EQ(parsed.crc32c(), Crc32c(payload));
}

TEST(FrameCodecTest, MessageByProtobuf_IsUnderstood) {
  Fixture fixture;
  const std::vector<uint8_t> payload = Payload(3000);
  Frame frame = AHeader(0);
  frame.set_total(3000);
  frame.set_crc32c(Crc32c(payload));
  frame.set_payload(payload.data(), payload.size());
  ASSERT_EQ(fixture.Accept(frame.SerializeAsString()), Outcome::kComplete);
  const auto received = fixture.assembler.TakePayload();
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), received->bytes().begin()));
}

TEST(FrameCodecTest, PayloadFirstAndUnknownField_TakeTheOrdinaryParser) {
  const std::vector<uint8_t> payload = Payload(3000);
  std::string message = OneMessage(AHeader(0), payload);
  Frame only_payload;
  only_payload.set_payload(payload.data(), payload.size());
  std::string reordered = only_payload.SerializeAsString();
  Frame rest;
  ASSERT_TRUE(rest.ParseFromString(message));
  rest.clear_payload();
  reordered += rest.SerializeAsString();
  reordered += std::string("\xa0\x06\x01", 3);  // field 100, varint
  Fixture fixture;
  ASSERT_EQ(fixture.Accept(reordered), Outcome::kComplete);
  EXPECT_EQ(fixture.assembler.header().n(), 100u);
  const auto received = fixture.assembler.TakePayload();
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), received->bytes().begin()));
}

TEST(FrameAssemblerTest, Chunks_MakeOneFrame) {
  const size_t bytes = 2 * kMaxChunkBytes + 5;
  Fixture fixture({3, 77, 0, bytes, 64}, 4 * kMaxChunkBytes);
  const std::vector<uint8_t> payload = Payload(bytes);
  FrameChunks chunks(AHeader(0), payload);
  EXPECT_EQ(fixture.Accept(Whole(&chunks)), Outcome::kStored);
  EXPECT_TRUE(fixture.assembler.in_the_middle());
  EXPECT_EQ(fixture.Accept(Whole(&chunks)), Outcome::kStored);
  EXPECT_EQ(fixture.Accept(Whole(&chunks)), Outcome::kComplete);
  EXPECT_TRUE(chunks.done());
  EXPECT_EQ(fixture.assembler.next_sequence(), 1u);
  const auto received = fixture.assembler.TakePayload();
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), received->bytes().begin()));
}

TEST(FrameAssemblerTest, Tick_IsNoFrame) {
  Fixture fixture;
  EXPECT_EQ(fixture.Accept(""), Outcome::kStored);
  EXPECT_EQ(fixture.assembler.next_sequence(), 0u);
}

TEST(FrameAssemblerTest, StaleAndDuplicate_AreDropped) {
  Fixture fixture;
  Frame header = AHeader(0);
  header.set_epoch(2);
  EXPECT_EQ(fixture.Accept(OneMessage(header, Payload(3000))), Outcome::kDropped);
  EXPECT_EQ(fixture.assembler.reason(), RejectReason::kEpoch);
  header = AHeader(0);
  header.set_incarnation(78);
  EXPECT_EQ(fixture.Accept(OneMessage(header, Payload(3000))), Outcome::kDropped);
  EXPECT_EQ(fixture.assembler.reason(), RejectReason::kIncarnation);
  EXPECT_EQ(fixture.pool->bytes_in_use(), 0u);
  EXPECT_EQ(fixture.Accept(OneMessage(AHeader(0), Payload(3000))), Outcome::kComplete);
  EXPECT_EQ(fixture.Accept(OneMessage(AHeader(0), Payload(3000))), Outcome::kDropped);
  EXPECT_EQ(fixture.assembler.reason(), RejectReason::kDuplicate);
  EXPECT_EQ(fixture.Accept(OneMessage(AHeader(1), Payload(3000))), Outcome::kComplete);
}

struct BadFrame {
  const char* name;
  std::function<std::string()> message;
  RejectReason reason;
  absl::StatusCode code;
};

Frame Changed(const std::function<void(Frame*)>& change, size_t payload_bytes) {
  const std::vector<uint8_t> payload = Payload(payload_bytes);
  Frame frame = AHeader(0);
  frame.set_total(payload_bytes);
  frame.set_crc32c(Crc32c(payload));
  frame.set_payload(payload.data(), payload.size());
  change(&frame);
  return frame;
}

TEST(FrameAssemblerTest, BadFrames_AreRefusedBeforeMemoryIsTaken) {
  const auto changed = [](std::function<void(Frame*)> change, size_t bytes = 3000) {
    return [change = std::move(change), bytes] { return Changed(change, bytes).SerializeAsString(); };
  };
  const BadFrame cases[] = {
      {"gap", changed([](Frame* f) { f->set_sequence(1); }), RejectReason::kSequenceGap,
       absl::StatusCode::kFailedPrecondition},
      {"unknown kind", changed([](Frame* f) { f->set_kind(static_cast<FrameKindCode>(9)); }), RejectReason::kMalformed,
       absl::StatusCode::kInvalidArgument},
      {"hello again", changed([](Frame* f) { f->mutable_hello(); }), RejectReason::kMalformed,
       absl::StatusCode::kInvalidArgument},
      {"too small", changed([](Frame*) {}, 2999), RejectReason::kSize, absl::StatusCode::kInvalidArgument},
      {"claims a terabyte", changed([](Frame* f) { f->set_total(uint64_t{1} << 40); }), RejectReason::kSize,
       absl::StatusCode::kInvalidArgument},
      {"claims 2^64-1", changed([](Frame* f) { f->set_total(~uint64_t{0}); }), RejectReason::kSize,
       absl::StatusCode::kInvalidArgument},
      {"stop with payload", changed([](Frame* f) { f->set_kind(FRAME_KIND_STOP); }), RejectReason::kSize,
       absl::StatusCode::kInvalidArgument},
      {"norms too long", changed([](Frame* f) { f->set_kind(FRAME_KIND_NORMS); }, 65), RejectReason::kOverLimit,
       absl::StatusCode::kInvalidArgument},
      {"starts in the middle", changed([](Frame* f) { f->set_offset(8); }), RejectReason::kSequenceGap,
       absl::StatusCode::kFailedPrecondition},
      {"offset wraps", changed([](Frame* f) { f->set_offset(~uint64_t{0}); }), RejectReason::kSequenceGap,
       absl::StatusCode::kFailedPrecondition},
      {"not protobuf", [] { return std::string("\xff\xff\xff\xff garbage"); }, RejectReason::kMalformed,
       absl::StatusCode::kInvalidArgument},
      {"truncated", [&] { return OneMessage(AHeader(0), Payload(3000)).substr(0, 2000); }, RejectReason::kMalformed,
       absl::StatusCode::kInvalidArgument},
      {"message too large", [] { return std::string(kMaxChunkBytes + kMaxFrameHeadBytes + 1, 'x'); },
       RejectReason::kOverLimit, absl::StatusCode::kInvalidArgument},
  };
  for (const BadFrame& bad : cases) {
    Fixture fixture;
    EXPECT_EQ(fixture.Accept(bad.message()), Outcome::kRefused) << bad.name;
    EXPECT_EQ(fixture.assembler.reason(), bad.reason)
        << bad.name << ": " << RejectReasonName(fixture.assembler.reason());
    EXPECT_EQ(fixture.assembler.status().code(), bad.code) << bad.name << ": " << fixture.assembler.status();
    EXPECT_EQ(fixture.pool->bytes_in_use(), 0u) << bad.name;
  }
}

TEST(FrameAssemblerTest, ChunkBeyondItsFrame_IsRefused) {
  Fixture fixture;
  EXPECT_EQ(fixture.Accept(Changed([](Frame* f) { f->set_total(3000); }, 3001).SerializeAsString()), Outcome::kRefused);
  EXPECT_EQ(fixture.assembler.reason(), RejectReason::kSize);
}

TEST(FrameAssemblerTest, FlippedBit_IsDataLoss) {
  Fixture fixture;
  std::string message = OneMessage(AHeader(0), Payload(3000));
  message[message.size() - 100] ^= 4;
  EXPECT_EQ(fixture.Accept(message), Outcome::kRefused);
  EXPECT_EQ(fixture.assembler.reason(), RejectReason::kChecksum);
  EXPECT_TRUE(absl::IsDataLoss(fixture.assembler.status()));
}

TEST(FrameAssemblerTest, PoolFull_AcceptsTheSameMessageLater) {
  Fixture fixture(AnExpectation(), 4096);
  const std::string message = OneMessage(AHeader(0), Payload(3000));
  {
    const auto other = *fixture.pool->Allocate(3000);
    EXPECT_EQ(fixture.Accept(message), Outcome::kPoolFull);
  }
  EXPECT_EQ(fixture.Accept(message), Outcome::kComplete);
}

TEST(FrameAssemblerTest, ChunksOfDifferentFrames_AreRefused) {
  const size_t bytes = kMaxChunkBytes + 5;
  Fixture fixture({3, 77, 0, bytes, 64}, 4 * kMaxChunkBytes);
  const std::vector<uint8_t> payload = Payload(bytes);
  FrameChunks chunks(AHeader(0), payload);
  EXPECT_EQ(fixture.Accept(Whole(&chunks)), Outcome::kStored);
  Frame other = AHeader(0);
  other.set_n(4);
  FrameChunks others(other, payload);
  EXPECT_EQ(fixture.Accept(Whole(&others)), Outcome::kRefused);
  EXPECT_EQ(fixture.assembler.reason(), RejectReason::kMalformed);
}

}  // namespace
}  // namespace stagecoach
