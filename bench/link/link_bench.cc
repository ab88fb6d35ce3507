// Bytes a second of FrameSender -> FrameReceiver between two processes over loopback, beside raw TCP in the same run,
// and CPU seconds a gigabyte of both processes together. One JSON document on stdout.
//
//   bench_link [--megabytes 1024] [--rounds 3]
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/link/raw_tcp.h"
#include "common/event_loop.h"
#include "worker/link/grpc_link.h"

namespace stagecoach {
namespace {

constexpr size_t kFrameSizes[] = {size_t{64} << 10, size_t{1} << 20, size_t{4} << 20};
constexpr size_t kInFlightBytes = size_t{16} << 20;  // handed to the sender and not yet with gRPC

struct Outcome {
  double seconds = -1;
  double cpu_seconds = 0;  // of the receiving process
};

double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

StreamIdentity Identity() {
  StreamIdentity identity;
  identity.run = "bench";
  identity.sender = "sender";
  return identity;
}

double ReceiveFrames(int port_fd, uint64_t total, size_t frame_bytes) {
  ThreadEventLoop loop("receiver");
  GrpcLinkOptions options;
  options.loop = &loop;
  options.pool = HostBufferPool::Create(size_t{256} << 20);
  auto factory = std::move(GrpcLinkFactory::Create(options)).value();
  const uint64_t frames = total / frame_bytes;
  std::promise<double> done;
  uint64_t received = 0;
  std::chrono::steady_clock::time_point start;
  ReceiverCallbacks callbacks;
  callbacks.on_frame = [&](LinkFrame) {
    if (received++ == 0) start = std::chrono::steady_clock::now();
    if (received == frames)
      done.set_value(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  };
  std::unique_ptr<FrameReceiver> receiver;
  std::promise<void> opened;
  loop.Post([&] {
    receiver = factory->OpenReceiver(Identity(), 0, {frame_bytes, 0, 0}, callbacks);
    opened.set_value();
  });
  opened.get_future().wait();
  const int port = factory->listen_port();
  if (write(port_fd, &port, sizeof port) != sizeof port) return -1;
  const double seconds = done.get_future().get();
  std::promise<void> closed;
  loop.Post([&] {
    receiver.reset();
    closed.set_value();
  });
  closed.get_future().wait();
  factory->Shutdown();
  // The first frame arrived before the clock started.
  return seconds * static_cast<double>(frames) / static_cast<double>(frames - 1);
}

bool SendFrames(int port, uint64_t total, size_t frame_bytes) {
  ThreadEventLoop loop("sender");
  GrpcLinkOptions options;
  options.loop = &loop;
  const auto pool = HostBufferPool::Create(size_t{64} << 20);
  options.pool = pool;
  auto factory = std::move(GrpcLinkFactory::Create(options)).value();
  auto buffer = std::move(pool->Allocate(frame_bytes)).value();
  std::memset(buffer->bytes().data(), 'x', frame_bytes);
  const uint64_t frames = total / frame_bytes;
  const uint64_t window = std::max<uint64_t>(4, kInFlightBytes / frame_bytes);
  uint64_t queued = 0;
  std::unique_ptr<FrameSender> sender;
  std::promise<void> closed;
  const auto fill = [&] {
    while (queued < frames && sender->queued_frames() < window) {
      LinkFrame frame;
      frame.n = queued++;
      frame.payload = buffer;
      sender->Send(std::move(frame));
    }
  };
  SenderCallbacks callbacks;
  callbacks.on_sent = fill;
  callbacks.on_closed = [&](absl::Status) { closed.set_value(); };  // the receiver has everything
  loop.Post([&] {
    sender = factory->OpenSender("127.0.0.1:" + std::to_string(port), Identity(), 0, 10, callbacks);
    fill();
  });
  closed.get_future().wait();
  std::promise<void> destroyed;
  loop.Post([&] {
    sender.reset();
    destroyed.set_value();
  });
  destroyed.get_future().wait();
  factory->Shutdown();
  return queued == frames;
}

// One measurement in this process; results through `result_fd`.
int RunRole(const std::string& role, const std::string& transport, int in_fd, int out_fd, uint64_t total,
            size_t bytes) {
  Outcome outcome;
  if (role == "receive") {
    outcome.seconds = transport == "frames" ? ReceiveFrames(out_fd, total, bytes) : ReceiveRawTcp(out_fd, total, bytes);
  } else {
    int port = 0;
    if (read(in_fd, &port, sizeof port) != sizeof port) return 1;
    outcome.seconds =
        (transport == "frames" ? SendFrames(port, total, bytes) : SendRawTcp(port, total, bytes)) ? 0 : -1;
  }
  outcome.cpu_seconds = CpuSeconds(RUSAGE_SELF);
  return write(out_fd, &outcome, sizeof outcome) == sizeof outcome && outcome.seconds >= 0 ? 0 : 1;
}

struct Child {
  pid_t pid = 0;
  int in = -1, out = -1;  // ours: write to in, read from out
};

// Each role runs in a fresh process: gRPC does not survive a fork.
Child Spawn(const char* role, const char* transport, uint64_t total, size_t bytes) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) std::exit(1);
  const pid_t pid = fork();
  if (pid == 0) {
    const int in = dup(to[0]), out = dup(from[1]);
    execl("/proc/self/exe", "bench_link", role, transport, std::to_string(in).c_str(), std::to_string(out).c_str(),
          std::to_string(total).c_str(), std::to_string(bytes).c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  return {pid, to[1], from[0]};
}

struct Sample {
  double bytes_per_second = 0, cpu_seconds_per_gigabyte = 0;
};

Sample Measure(const char* transport, uint64_t total, size_t bytes) {
  const Child receiver = Spawn("receive", transport, total, bytes);
  int port = 0;
  if (read(receiver.out, &port, sizeof port) != sizeof port) std::exit(1);
  const Child sender = Spawn("send", transport, total, bytes);
  if (write(sender.in, &port, sizeof port) != sizeof port) std::exit(1);
  Outcome received, sent;
  if (read(receiver.out, &received, sizeof received) != sizeof received) std::exit(1);
  if (read(sender.out, &sent, sizeof sent) != sizeof sent) std::exit(1);
  for (const Child& child : {receiver, sender}) {
    close(child.in);
    close(child.out);
    waitpid(child.pid, nullptr, 0);
  }
  if (received.seconds <= 0 || sent.seconds < 0) std::exit(1);
  const double amount = static_cast<double>(total);
  return {amount / received.seconds, (received.cpu_seconds + sent.cpu_seconds) / (amount / 1e9)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(uint64_t megabytes, int rounds) {
  std::printf("{\"benchmark\": \"link\", \"megabytes\": %llu, \"rounds\": %d, \"cores\": %ld, \"results\": [\n",
              static_cast<unsigned long long>(megabytes), rounds, sysconf(_SC_NPROCESSORS_ONLN));
  const char* separator = "";
  for (const size_t bytes : kFrameSizes) {
    const uint64_t total = (megabytes << 20) / bytes * bytes;
    std::vector<double> link, tcp, ratio, link_cpu, tcp_cpu;
    for (int round = 0; round < rounds; ++round) {  // side by side, so that both see the same neighbours
      const Sample raw = Measure("tcp", total, bytes);
      const Sample frames = Measure("frames", total, bytes);
      link.push_back(frames.bytes_per_second);
      tcp.push_back(raw.bytes_per_second);
      ratio.push_back(frames.bytes_per_second / raw.bytes_per_second);
      link_cpu.push_back(frames.cpu_seconds_per_gigabyte);
      tcp_cpu.push_back(raw.cpu_seconds_per_gigabyte);
    }
    std::printf(
        "%s  {\"frame_bytes\": %zu, \"link_bytes_per_second\": %.3e, \"tcp_bytes_per_second\": %.3e, \"ratio\": %.3f, "
        "\"link_cpu_seconds_per_gigabyte\": %.3f, \"tcp_cpu_seconds_per_gigabyte\": %.3f}",
        separator, bytes, Median(link), Median(tcp), Median(ratio), Median(link_cpu), Median(tcp_cpu));
    std::fflush(stdout);
    separator = ",\n";
  }
  std::printf("\n]}\n");
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  if (argc == 7) {
    return stagecoach::RunRole(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]),
                               std::strtoull(argv[5], nullptr, 10), std::strtoull(argv[6], nullptr, 10));
  }
  uint64_t megabytes = 1024;
  int rounds = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--megabytes") == 0) megabytes = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::atoi(argv[i + 1]);
  }
  return stagecoach::Main(megabytes, rounds);
}
