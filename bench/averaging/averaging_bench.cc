// One owner of a shard that averages it with others, each in a process of its own. Prints one JSON line with the
// seconds of each round.
//
//   bench_averaging --rank 0 --listen 127.0.0.1:7100 --peers 127.0.0.1:7100,127.0.0.1:7201 --meeting FOLDER
//                   [--codec int8] [--parameters 8000000] [--rounds 3] [--uplink-mbit 0] [--idle-seconds 0]
//
// --peers: the address of every rank as this process dials it (the link emulator's port in between); its own is not
// used. --meeting: an empty folder that all ranks see; a round begins when all have written there. A first round of a
// few numbers, which is not timed, opens the connections; before each timed one there is no traffic for --idle-seconds,
// as between the rounds of a run. Timed from our Begin to our result.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/averaging/averaging_config.h"
#include "common/counter_rng.h"
#include "worker/average/round_carrier.h"
#include "worker/link/grpc_link.h"

namespace {

using namespace stagecoach;

StreamIdentity IdentityOf(uint32_t from, uint32_t to) {
  StreamIdentity identity;
  identity.run = "bench";
  identity.cluster = absl::StrCat("c", from);
  identity.epoch = 1;
  identity.sender = absl::StrCat("w", from);
  identity.sender_incarnation = 100 + from;
  identity.receiver_incarnation = 100 + to;
  identity.direction = LinkDirection::kAveraging;
  return identity;
}

// Ends when every rank has come to meet for this round; 0.2 ms after the last one at most.
void Meet(const std::string& folder, int round, uint32_t rank, uint32_t ranks) {
  const auto name = [&](uint32_t of) { return absl::StrCat(folder, "/round", round, ".", of); };
  std::ofstream(name(rank)).flush();
  for (uint32_t other = 0; other < ranks; ++other) {
    while (!std::filesystem::exists(name(other))) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"parameters", "8000000"}, {"rounds", "3"}, {"uplink-mbit", "0"},
                                              {"codec", "int8"},         {"rank", "0"},   {"idle-seconds", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i] + 2] = argv[i + 1];
  AveragingCodec codec{};
  const std::vector<std::string> peers = absl::StrSplit(flags["peers"], ',');
  const uint32_t rank = static_cast<uint32_t>(std::atoi(flags["rank"].c_str()));
  const uint32_t ranks = static_cast<uint32_t>(peers.size());
  const uint64_t parameters = std::strtoull(flags["parameters"].c_str(), nullptr, 10);
  const int rounds = std::atoi(flags["rounds"].c_str());
  if (!ParseAveragingCodec(flags["codec"], &codec) || rank >= ranks || parameters == 0 || flags["meeting"].empty()) {
    std::fprintf(stderr, "bench_averaging: see the head of averaging_bench.cc for the flags\n");
    return 64;
  }

  ThreadEventLoop links_loop("links"), work("work");
  GrpcLinkOptions options;
  options.loop = &links_loop;
  options.pool = HostBufferPool::Create(size_t{64} << 20);
  options.listen = flags["listen"];
  options.incarnation = 100 + rank;
  auto links = GrpcLinkFactory::Create(std::move(options));
  if (!links.ok()) {
    std::fprintf(stderr, "bench_averaging: %s\n", std::string(links.status().message()).c_str());
    return 1;
  }

  AveragingConfig averaging;
  averaging.codec = codec;
  CommonShard opening, averaged;  // of the round that opens the connections, and of those that are timed
  std::vector<float> pinned(parameters);
  const CounterRng rng(7, RngPurpose::kTest, rank);
  for (uint64_t i = 0; i < parameters; i += 4) {
    const auto block = rng.Block(i / 4);
    for (uint64_t j = i; j < std::min(parameters, i + 4); ++j) {
      pinned[j] = static_cast<float>(block[j - i] >> 8) / 16777216.0f - 0.5f;
    }
  }
  std::unique_ptr<RoundCarrier> carrier;
  std::promise<std::string>* result = nullptr;
  const auto on_work = [&](const std::function<void()>& function) {
    std::promise<void> done;
    work.Post([&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  };
  on_work([&] {
    RoundCarrier::Options carrying;
    carrying.work = &work;
    carrying.links_loop = &links_loop;
    carrying.links = links->get();
    carrying.connect_seconds = 30;
    carrying.pacer.uplink_bytes_per_second = std::atof(flags["uplink-mbit"].c_str()) * 1e6 / 8;
    carrying.on_settled = [&](const RoundExchange& exchange) {
      result->set_value(exchange.phase() == RoundExchange::Phase::kProposed ? exchange.hash() : "");
    };
    carrier = std::make_unique<RoundCarrier>(std::move(carrying));
    for (uint32_t other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      carrier->OpenPartner({absl::StrCat("w", other), peers[other], IdentityOf(rank, other), IdentityOf(other, rank)});
    }
  });
  std::vector<std::string> seconds, hashes;
  uint64_t bytes = 0;
  bool good = true;
  for (int round = 0; good && round <= rounds; ++round) {
    const bool timed = round > 0;
    const uint64_t size = timed ? parameters : 64 * ranks;
    std::promise<std::string> settled;
    std::future<std::string> hash = settled.get_future();
    uint64_t before = 0;
    on_work([&] {
      result = &settled;
      before = carrier->bytes_sent();
    });
    CommonShard& shard = timed ? averaged : opening;
    shard.theta.assign(size, 0.0f);
    shard.next_theta.resize(size);
    const ExchangeTerms terms =
        TermsOf(averaging, static_cast<uint64_t>(round) + 1, 1, 0, size,
                std::vector<float>(ranks, 1.0f / static_cast<float>(ranks)), std::vector<uint64_t>(ranks, 1));
    const uint64_t to_send = BytesSent(terms.method, terms.codec, terms.chunks, rank, terms.piece_parameters);
    if (timed) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(flags["idle-seconds"].c_str())));
      Meet(flags["meeting"], round, rank, ranks);
    }
    const auto start = std::chrono::steady_clock::now();
    on_work([&] {
      auto exchange = RoundExchange::Begin(terms, rank, &shard, [&](uint64_t first, absl::Span<float> out) {
        std::memcpy(out.data(), pinned.data() + first, out.size() * sizeof(float));
      });
      std::vector<std::string> names;
      for (uint32_t other = 0; other < ranks; ++other) names.push_back(other == rank ? "" : absl::StrCat("w", other));
      carrier->Begin(*std::move(exchange), std::move(names));
    });
    const std::string digest = hash.get();
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    good = !digest.empty();
    // Our result may be complete before the last pieces for the others have left, and the next round replaces this one.
    for (bytes = 0; good && bytes < to_send;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      on_work([&] { bytes = carrier->bytes_sent() - before; });
    }
    if (!timed || !good) continue;
    seconds.push_back(absl::StrCat(taken));
    hashes.push_back(absl::StrCat("\"", digest.substr(0, 16), "\""));
  }
  // What is still with the transport may be what the others wait for.
  std::promise<void> drained;
  work.PostAfter(std::chrono::seconds(1), [&] { drained.set_value(); });
  drained.get_future().wait();
  on_work([&] { carrier.reset(); });
  (*links)->Shutdown();
  work.Stop();
  links_loop.Stop();
  std::printf("{\"rank\":%u,\"codec\":\"%s\",\"seconds\":[%s],\"payload_bytes\":%llu,\"hashes\":[%s]}\n", rank,
              AveragingCodecName(codec), absl::StrJoin(seconds, ",").c_str(), static_cast<unsigned long long>(bytes),
              absl::StrJoin(hashes, ",").c_str());
  return good ? 0 : 1;
}
