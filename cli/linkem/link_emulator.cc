#include "cli/linkem/link_emulator.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxConnections = 4096;  // two descriptors each; a fleet of 16 workers on one machine needs about 500
absl::Status SystemError(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Receive buffer of accepted sockets: 20 ms of the rate, so that the link never runs dry between two wake-ups, but no
// more: what waits beyond it must push back on the sender.
int ReceiveBuffer(const LinkShape& shape) {
  return std::clamp(static_cast<int>(shape.bytes_per_second * 0.02), 256 << 10, 8 << 20);
}

}  // namespace

absl::StatusOr<std::pair<std::string, uint16_t>> ResolveTarget(const std::string& target) {
  std::string address = target;
  if (target.starts_with('@')) {
    std::ifstream file(target.substr(1));
    if (!(file >> address)) return absl::NotFoundError(absl::StrCat("no port in ", target.substr(1), " yet"));
  }
  std::string host = "127.0.0.1";
  std::string port_text = address;
  if (const size_t colon = address.rfind(':'); colon != std::string::npos) {
    host = address.substr(0, colon);
    port_text = address.substr(colon + 1);
  }
  if (host == "localhost" || host == "0.0.0.0") host = "127.0.0.1";
  uint32_t port = 0;
  in_addr ignored{};
  if (!absl::SimpleAtoi(port_text, &port) || port == 0 || port > 65535 ||
      inet_pton(AF_INET, host.c_str(), &ignored) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("target '", address, "' is not ADDRESS:PORT with a numeric IPv4 address"));
  }
  return std::pair(host, static_cast<uint16_t>(port));
}

absl::StatusOr<std::unique_ptr<LinkEmulator>> LinkEmulator::Create(std::vector<EmulatedLink> links, uint64_t seed,
                                                                   const std::vector<EmulatedEnd>& ends) {
  std::unique_ptr<LinkEmulator> emulator(new LinkEmulator);
  emulator->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  emulator->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  emulator->stop_event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (emulator->epoll_ < 0 || emulator->timer_ < 0 || emulator->stop_event_ < 0) return SystemError("link emulator");
  for (const EmulatedEnd& end : ends) {
    EndClocks& clocks = emulator->ends_[end.name];
    const auto clock = [&](double rate) {
      // Nothing random without jitter and losses: any stream will do.
      return rate > 0 ? std::make_unique<LinkClock>(LinkShape{.bytes_per_second = rate}, seed, 0) : nullptr;
    };
    clocks.up = clock(end.up_bytes_per_second);
    clocks.down = clock(end.down_bytes_per_second);
  }
  for (const EmulatedLink& link : links) emulator->AddDirection(link.from, link.to, link.shape, seed);
  for (const EmulatedLink& link : links) emulator->AddDirection(link.to, link.from, link.shape, seed);
  for (EmulatedLink& link : links) {
    if (!link.target.starts_with('@')) RETURN_IF_ERROR(ResolveTarget(link.target).status());
    RETURN_IF_ERROR(emulator->Listen(std::move(link)));
  }
  for (Listener& listener : emulator->listeners_) {
    epoll_event event{EPOLLIN, {.ptr = &listener}};
    if (epoll_ctl(emulator->epoll_, EPOLL_CTL_ADD, listener.fd, &event) < 0) return SystemError("epoll_ctl");
  }
  for (int* fd : {&emulator->timer_, &emulator->stop_event_}) {
    epoll_event event{EPOLLIN, {.ptr = fd}};
    if (epoll_ctl(emulator->epoll_, EPOLL_CTL_ADD, *fd, &event) < 0) return SystemError("epoll_ctl");
  }
  return emulator;
}

LinkEmulator::~LinkEmulator() {
  connections_.clear();
  for (const Listener& listener : listeners_) close(listener.fd);
  for (const int fd : {epoll_, timer_, stop_event_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status LinkEmulator::Listen(EmulatedLink link) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("socket");
  listeners_.push_back({fd, 0, link});
  const int on = 1;
  const int buffer = ReceiveBuffer(link.shape);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));  // inherited by accepted sockets
  sockaddr_in address = Loopback(link.listen_port);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0 || listen(fd, SOMAXCONN) < 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on 127.0.0.1:", link.listen_port, " for ", link.from, ":",
                                               link.to, ": ", strerror(errno), "; use port 0 for any free one"));
  }
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  listeners_.back().port = ntohs(address.sin_port);
  return absl::OkStatus();
}

// The first shape of a direction stays.
void LinkEmulator::AddDirection(const std::string& from, const std::string& to, const LinkShape& shape, uint64_t seed) {
  std::unique_ptr<SharedDirection>& slot = directions_[{from, to}];
  if (slot != nullptr) return;
  slot = std::make_unique<SharedDirection>(from, to, LinkClock(shape, seed, directions_.size()), ends_[from].up.get(),
                                           ends_[to].down.get());
  turns_.push_back(slot.get());
}

void LinkEmulator::Accept(const Listener& listener) {
  for (;;) {
    const int source = accept4(listener.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (source < 0) return;  // EAGAIN, or a connection that is gone already
    const auto target = ResolveTarget(listener.link.target);
    const int fd = target.ok() && connections_.size() < kMaxConnections
                       ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
                       : -1;
    if (fd < 0) {  // the dialler sees a closed connection and tries again
      close(source);
      continue;
    }
    const int on = 1;
    const int buffer = ReceiveBuffer(listener.link.shape);
    setsockopt(source, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    sockaddr_in address = Loopback(target->second);
    inet_pton(AF_INET, target->first.c_str(), &address.sin_addr);
    connections_.push_back(std::make_unique<ProxiedConnection>(source, fd));
    ProxiedConnection& connection = *connections_.back();
    const int status = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    if (status < 0 && errno != EINPROGRESS) connection.Break();
    for (Endpoint* endpoint : {&connection.source, &connection.target}) {
      epoll_event event{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = endpoint}};
      if (epoll_ctl(epoll_, EPOLL_CTL_ADD, endpoint->fd, &event) < 0) connection.Break();
    }
    directions_.at({listener.link.from, listener.link.to})->flows.push_back(&connection.forward);
    directions_.at({listener.link.to, listener.link.from})->flows.push_back(&connection.backward);
  }
}

}  // namespace stagecoach
