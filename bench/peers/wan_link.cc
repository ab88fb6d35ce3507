// Emulates one wide-area link between two network namespaces: rate, one-way delay, a bounded queue. Needs root and
// /dev/net/tun. Real TCP runs over it, so programs of any kind can be compared on equal links.
//
//   wan_link NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B DELAY_MICROSECONDS RATE_MBIT
//
// Two TUN devices, one in each namespace; a packet read from one is written to the other when it is due:
//   link_free = max(now, link_free) + bits / rate;  due = link_free + delay;  dropped if it would queue > kMaxQueue.
// Prints "ready" when both devices exist; runs until SIGTERM.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kMaxQueue = std::chrono::milliseconds(200);  // a usual router buffer; beyond it TCP must slow down
constexpr int kBatch = 256;                                 // packets of one direction before the other one is served

int OpenTun(const std::string& network_namespace, const char* device) {
  const int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int target = open(("/run/netns/" + network_namespace).c_str(), O_RDONLY | O_CLOEXEC);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  int tun = -1;
  if (own < 0 || target < 0 || setns(target, CLONE_NEWNET) != 0 ||
      (tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK)) < 0 || ioctl(tun, TUNSETIFF, &request) != 0 ||
      setns(own, CLONE_NEWNET) != 0) {
    std::perror(("wan_link: device in namespace " + network_namespace).c_str());
    std::exit(1);
  }
  close(own);
  close(target);
  return tun;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

struct OneWay {
  int from, to;
  Clock::time_point link_free{};
  std::deque<Packet> queue;

  void Receive(std::chrono::nanoseconds delay, double bits_per_second) {
    static char buffer[65600];  // above any MTU of a TUN device
    for (int i = 0; i < kBatch; ++i) {
      const ssize_t size = read(from, buffer, sizeof buffer);
      if (size <= 0) return;
      const auto now = Clock::now();
      const auto start = std::max(now, link_free);
      if (start - now > kMaxQueue) continue;
      link_free =
          start + std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(size) * 8e9 / bits_per_second));
      queue.push_back({link_free + delay, std::vector<char>(buffer, buffer + size)});
    }
  }

  void Deliver() {
    const auto now = Clock::now();
    for (; !queue.empty() && queue.front().due <= now; queue.pop_front()) {
      const Packet& packet = queue.front();
      if (write(to, packet.bytes.data(), packet.bytes.size()) < 0) continue;  // the far end is down: lost, as on a wire
    }
  }
};

volatile std::sig_atomic_t g_stop = 0;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: wan_link NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B DELAY_MICROSECONDS RATE_MBIT\n");
    return 64;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGTERM, [](int) { g_stop = 1; });
  const int a = OpenTun(argv[1], argv[2]);
  const int b = OpenTun(argv[3], argv[4]);
  const std::chrono::nanoseconds delay(std::strtoll(argv[5], nullptr, 10) * 1000);
  const double bits_per_second = std::strtod(argv[6], nullptr) * 1e6;
  OneWay ways[2] = {{a, b, {}, {}}, {b, a, {}, {}}};
  std::puts("ready");
  std::fflush(stdout);
  while (g_stop == 0) {
    auto wait = std::chrono::nanoseconds(std::chrono::milliseconds(100));  // so that SIGTERM is noticed
    for (const OneWay& way : ways) {
      if (!way.queue.empty()) wait = std::min(wait, std::chrono::nanoseconds(way.queue.front().due - Clock::now()));
    }
    wait = std::max(wait, std::chrono::nanoseconds(0));
    pollfd readable[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    const timespec timeout{wait.count() / 1000000000, wait.count() % 1000000000};
    ppoll(readable, 2, &timeout, nullptr);
    for (OneWay& way : ways) {
      way.Receive(delay, bits_per_second);
      way.Deliver();
    }
  }
  return 0;
}
