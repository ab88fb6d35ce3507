// Compares the fast parser of frames with protobuf's own on arbitrary bytes, and feeds them to the assembler. Built as
// a libFuzzer target it is driven by libFuzzer; in ctest a deterministic mutation loop drives it (mutation_loop.cc).
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "worker/tensor/frame_assembler.h"
#include "worker/tensor/frame_codec.h"

namespace {

using google::protobuf::io::ArrayInputStream;
using namespace stagecoach;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "frame_codec_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxChunkBytes) return 0;
  const int piece = 1 + static_cast<int>(size % 61);
  const auto source = [&] { return std::make_unique<ArrayInputStream>(data, static_cast<int>(size), piece); };

  Frame expected;
  const bool valid = expected.ParseFromArray(data, static_cast<int>(size));
  Frame header;
  std::string payload;
  size_t payload_bytes = 0;
  const auto place = [&](const Frame&, size_t bytes) -> absl::StatusOr<uint8_t*> {
    Require(bytes <= size, "a payload larger than its message");
    payload.resize(bytes);
    return reinterpret_cast<uint8_t*>(payload.data());
  };
  const absl::Status decoded = DecodeFrame(source, size, place, &header, &payload_bytes);
  Require(decoded.ok() == valid, "one parser accepts what the other refuses");
  if (valid) {
    Require(payload == expected.payload() && payload_bytes == payload.size(), "the payloads differ");
    expected.clear_payload();
    Require(header.SerializeAsString() == expected.SerializeAsString(), "the headers differ");
  }

  const auto pool = HostBufferPool::Create(4096);
  for (const FrameExpectation& expectation :
       {FrameExpectation{1, 2, 0, 256, 64}, FrameExpectation{1, 2, 0, 0, 0, 256}}) {
    FrameAssembler assembler(expectation, pool);
    for (int repetition = 0; repetition < 2; ++repetition) {
      const FrameAssembler::Outcome outcome = assembler.Accept(source, size);
      Require(pool->bytes_in_use() <= 256, "more memory than the plan allows");
      Require(valid || outcome == FrameAssembler::Outcome::kRefused, "an invalid message was not refused");
      if (outcome == FrameAssembler::Outcome::kRefused) break;
    }
  }
  return 0;
}
