// Drives LLVMFuzzerTestOneInput for a few seconds with mutated valid frames. The seed is printed and can be given:
// STAGECOACH_FUZZ_SEED, STAGECOACH_FUZZ_SECONDS.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/counter_rng.h"
#include "common/hash.h"
#include "worker/tensor/frame_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using namespace stagecoach;

std::vector<std::string> Corpus() {
  std::vector<std::string> corpus = {""};
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{256}, size_t{300}}) {
    const std::vector<uint8_t> payload(bytes, 0x5a);
    for (int kind = 0; kind <= 8; ++kind) {
      Frame frame;
      frame.set_kind(static_cast<FrameKindCode>(kind));
      frame.set_n(bytes);
      frame.set_epoch(1);
      frame.set_incarnation(2);
      frame.set_total(bytes);
      frame.set_crc32c(Crc32c(payload));
      if (kind == FRAME_KIND_PIECE) {
        frame.mutable_piece()->set_shard(3);
        frame.mutable_piece()->set_phase(1);
        frame.mutable_piece()->set_first(bytes << 20);
      }
      frame.set_payload(payload.data(), payload.size());
      corpus.push_back(frame.SerializeAsString());
    }
  }
  Frame hello;
  hello.mutable_hello()->set_run("run");
  hello.mutable_hello()->set_worker("w0");
  corpus.push_back(hello.SerializeAsString());
  return corpus;
}

// One to four edits: flip, overwrite, insert, erase, repeat a part, truncate, append another input.
std::string Mutate(const std::vector<std::string>& corpus, uint64_t seed, uint64_t round) {
  const CounterRng rng(seed, RngPurpose::kTest, round);
  uint64_t next = 0;
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : rng.Word(next++) % limit; };
  std::string input = corpus[below(corpus.size())];
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const size_t at = below(input.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(below(256));
        break;
      case 2:
        input.insert(at, 1 + below(6), static_cast<char>(below(256)));
        break;
      case 3:
        input.erase(at, 1 + below(8));
        break;
      case 4:
        input.insert(below(input.size() + 1), input.substr(at, 1 + below(40)));
        break;
      case 5:
        input.resize(at);
        break;
      default:
        input += corpus[below(corpus.size())];
    }
  }
  return input;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

int main() {
  const google::protobuf::LogSilencer silencer;  // of complaints about names that are not UTF-8
  const uint64_t seed = FromEnvironment("STAGECOACH_FUZZ_SEED", 1);
  const uint64_t seconds = FromEnvironment("STAGECOACH_FUZZ_SECONDS", 3);
  std::printf("STAGECOACH_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const std::vector<std::string> corpus = Corpus();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t round = 0;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i) {
      const std::string input = Mutate(corpus, seed, round++);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    }
  }
  std::printf("%llu inputs, both parsers agree\n", static_cast<unsigned long long>(round));
  return 0;
}
