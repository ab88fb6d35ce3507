// Many workers that do nothing but register and send heartbeats, to measure a coordinator. Prints one JSON line.
//
//   bench_worker_sessions --coordinator HOST:PORT --sessions 1000 [--seconds 20] [--registered-file FILE]
//
// 16 sessions share a connection, as many as the coordinator allows on one. Each sends its heartbeat at the interval
// that the coordinator names, from a start drawn at random; the time from there to the reply is measured over the last
// `seconds`, which begin one interval after all have registered. FILE is written when they begin.
//
// Threading: one thread sends what is due; replies come on gRPC's pollers.
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grpc/channel_settings.h"
#include "common/grpc/poller_tick.h"
#include "protos/coordinator.grpc.pb.h"

namespace {

using namespace stagecoach;
using Clock = std::chrono::steady_clock;

constexpr int kSessionsPerConnection = 16;                    // what the coordinator's server allows
constexpr int kRegisteringAtOnce = 256;                       // far above what one loop answers in a round trip
constexpr auto kRegisterDeadline = std::chrono::seconds(90);  // all of them; several times what 10,000 take

uint64_t Nanoseconds(Clock::time_point at) { return static_cast<uint64_t>(at.time_since_epoch().count()); }

struct Fleet {
  std::mutex mutex;
  std::condition_variable changed;
  int registered = 0, ended = 0;
  std::string first_end;  // why the first session ended before it was told to
  bool measuring = false, stopping = false;
  uint64_t unanswered = 0;  // heartbeats that were due while the last one had no answer
  std::vector<uint64_t> waits;
};

class WorkerStream final : public grpc::ClientBidiReactor<WorkerMessage, CoordinatorMessage> {
 public:
  WorkerStream(Fleet* fleet, Coordinator::Stub* stub, int number) : fleet_(fleet) {
    Register* const hello = message_.mutable_register_();
    hello->set_name(absl::StrCat("worker-", number));
    hello->set_incarnation(1000 + static_cast<uint64_t>(number));
    hello->set_address(absl::StrCat("10.", number >> 16, ".", (number >> 8) & 255, ".", number & 255, ":7000"));
    hello->set_device("cpu");
    hello->set_host(absl::StrCat("host-", number));
    hello->set_cores(8);
    hello->set_memory_limit_bytes(uint64_t{8} << 30);
    stub->async()->Session(&context_, this);
    StartRead(&incoming_);
    StartWrite(&message_);
    StartCall();
  }

  // The sender's thread, after registration.
  void Beat() {
    {
      const std::lock_guard<std::mutex> lock(fleet_->mutex);
      if (ended_) return;
      if (waiting_) {
        fleet_->unanswered += fleet_->measuring;
        return;
      }
      waiting_ = true;
    }
    message_.Clear();
    Heartbeat* const beat = message_.mutable_heartbeat();
    beat->set_echo(Nanoseconds(Clock::now()));
    beat->mutable_counters()->set_resident_bytes(uint64_t{4} << 30);
    beat->mutable_counters()->set_busy_seconds(123.5);
    for (const char* reason : {"input", "gradient", "credit", "version", "scalar", "send"}) {
      (*beat->mutable_counters()->mutable_waiting_seconds())[reason] = 1.25;
    }
    StartWrite(&message_);
  }
  std::chrono::milliseconds interval() const { return std::chrono::milliseconds(interval_ms_.load()); }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const uint64_t now = Nanoseconds(Clock::now());
    {
      const std::lock_guard<std::mutex> lock(fleet_->mutex);
      if (incoming_.has_registered()) {
        interval_ms_ = incoming_.registered().heartbeat_interval_ms();
        ++fleet_->registered;
        fleet_->changed.notify_all();
      } else if (incoming_.has_heartbeat_reply()) {
        interval_ms_ = incoming_.heartbeat_reply().heartbeat_interval_ms();
        waiting_ = false;
        if (fleet_->measuring) fleet_->waits.push_back(now - incoming_.heartbeat_reply().echo());
      }
    }
    StartRead(&incoming_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(fleet_->mutex);
    ended_ = true;
    ++fleet_->ended;
    if (!fleet_->stopping && fleet_->first_end.empty()) {
      fleet_->first_end = absl::StrCat(static_cast<int>(status.error_code()), " ", status.error_message());
    }
    fleet_->changed.notify_all();
  }

 private:
  Fleet* const fleet_;
  grpc::ClientContext context_;
  WorkerMessage message_;
  CoordinatorMessage incoming_;
  std::atomic<uint32_t> interval_ms_{250};
  bool waiting_ = false, ended_ = false;  // fleet_->mutex
};

double Milliseconds(const std::vector<uint64_t>& sorted, double share) {
  if (sorted.empty()) return -1;
  return static_cast<double>(sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))]) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"sessions", "1000"}, {"seconds", "20"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i] + 2] = argv[i + 1];
  const int sessions = std::atoi(flags["sessions"].c_str());
  const int seconds = std::atoi(flags["seconds"].c_str());
  if (flags["coordinator"].empty() || sessions < 1 || seconds < 1) {
    std::fprintf(stderr, "bench_worker_sessions: see the head of worker_sessions.cc for the flags\n");
    return 64;
  }
  const std::shared_ptr<PollerTick> tick = PollerTick::Shared();
  Fleet fleet;
  std::vector<std::unique_ptr<Coordinator::Stub>> stubs;
  std::vector<std::unique_ptr<WorkerStream>> streams;
  const auto begin = Clock::now();
  using Due = std::pair<Clock::time_point, int>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
  std::mt19937_64 random(1);
  // Sends what is due until `until`.
  const auto beat_until = [&](Clock::time_point until) {
    while (!due.empty() && due.top().first < until) {
      const auto [at, number] = due.top();
      std::this_thread::sleep_until(at);
      due.pop();
      streams[number]->Beat();
      due.emplace(std::max(at + streams[number]->interval(), Clock::now()), number);
    }
  };
  bool good = true;
  for (int number = 0; good && number < sessions; ++number) {
    if (number % kSessionsPerConnection == 0) {
      stubs.push_back(Coordinator::NewStub(MakeChannel(flags["coordinator"], ChannelKind::kControl)));
    }
    streams.push_back(std::make_unique<WorkerStream>(&fleet, stubs.back().get(), number));
    const int wanted = number + 1 == sessions ? sessions : std::max(0, number + 1 - kRegisteringAtOnce);
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(fleet.mutex);
        if (fleet.registered >= wanted) break;
        good = fleet.ended == 0 && Clock::now() - begin < kRegisterDeadline;
        if (!good) break;
        fleet.changed.wait_for(lock, std::chrono::milliseconds(1));
      }
      beat_until(Clock::now());
    }
    // It begins to beat within its first interval; before it has registered that would be an error.
    if (number >= kRegisteringAtOnce) due.emplace(Clock::now(), number - kRegisteringAtOnce);
  }
  const double registering = std::chrono::duration<double>(Clock::now() - begin).count();
  if (good) {
    const auto now = Clock::now();
    const double interval = std::chrono::duration<double>(streams.back()->interval()).count();
    while (!due.empty()) due.pop();
    for (int number = 0; number < sessions; ++number) {
      const double later = std::uniform_real_distribution<double>(0, interval)(random);
      due.emplace(now + std::chrono::nanoseconds(static_cast<int64_t>(later * 1e9)), number);
    }
    const auto start = now + streams.back()->interval();
    beat_until(start);
    {
      const std::lock_guard<std::mutex> lock(fleet.mutex);
      fleet.measuring = true;
    }
    if (!flags["registered-file"].empty()) std::ofstream(flags["registered-file"]) << registering << "\n";
    beat_until(start + std::chrono::seconds(seconds));
  }
  std::unique_lock<std::mutex> lock(fleet.mutex);
  fleet.measuring = false;
  fleet.stopping = true;
  const int lost = fleet.ended;
  std::vector<uint64_t> waits = std::move(fleet.waits);
  std::sort(waits.begin(), waits.end());
  std::printf(
      "{\"sessions\":%d,\"registered\":%d,\"lost\":%d,\"first_end\":\"%s\",\"connections\":%zu,\"register_seconds\":%."
      "2f,"
      "\"heartbeats_per_second\":%.1f,\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,\"skipped\":%llu}\n",
      sessions, fleet.registered, lost, fleet.first_end.substr(0, 120).c_str(), stubs.size(), registering,
      static_cast<double>(waits.size()) / seconds, Milliseconds(waits, 0.5), Milliseconds(waits, 0.99),
      Milliseconds(waits, 1.0), static_cast<unsigned long long>(fleet.unanswered));
  std::fflush(stdout);
  lock.unlock();
  for (const auto& stream : streams) stream->Cancel();
  lock.lock();
  fleet.changed.wait(lock, [&] { return fleet.ended == static_cast<int>(streams.size()); });
  return good && lost == 0 ? 0 : 1;
}
