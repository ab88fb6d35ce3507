#include "worker/link/socket_bytes.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace stagecoach {
namespace {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  bool operator==(const Endpoint& other) const = default;
};

std::optional<Endpoint> FromSockaddr(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return Endpoint{text, ntohs(v4->sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {  // a dual-stack listener sees IPv4 peers so; gRPC prints them as IPv4
      inet_ntop(AF_INET, reinterpret_cast<const char*>(&v6->sin6_addr) + 12, text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
    return Endpoint{text, ntohs(v6->sin6_port)};
  }
  return std::nullopt;
}

std::optional<Endpoint> PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return FromSockaddr(address);
}

std::optional<Endpoint> LocalOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return FromSockaddr(address);
}

Endpoint ParsePeer(const std::string& peer) {
  Endpoint endpoint;
  const size_t scheme = peer.find(':');
  const size_t port = peer.rfind(':');
  if (scheme == std::string::npos || port <= scheme) return endpoint;
  endpoint.host = peer.substr(scheme + 1, port - scheme - 1);
  endpoint.port = static_cast<uint16_t>(std::atoi(peer.c_str() + port + 1));
  if (endpoint.host.rfind("%5B", 0) == 0 && endpoint.host.size() > 6) {
    endpoint.host = endpoint.host.substr(3, endpoint.host.size() - 6);
  }
  return endpoint;
}

// (local port, peer port) of the connections that are being counted. One for the process, as descriptors are.
class TakenConnections {
 public:
  bool Take(uint16_t local, uint16_t peer) {
    std::lock_guard<std::mutex> lock(mutex_);
    return taken_.emplace(local, peer).second;
  }
  void GiveBack(uint16_t local, uint16_t peer) {
    std::lock_guard<std::mutex> lock(mutex_);
    taken_.erase({local, peer});
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<uint16_t, uint16_t>> taken_;
};

TakenConnections& Taken() {
  static TakenConnections* const taken = new TakenConnections;
  return *taken;
}

}  // namespace

SocketBytes::SocketBytes(const std::string& peer) {
  const Endpoint wanted = ParsePeer(peer);
  host_ = wanted.host;
  peer_port_ = wanted.port;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = std::atoi(entry->d_name);
    if (PeerOf(fd) != wanted) continue;
    const std::optional<Endpoint> local = LocalOf(fd);
    if (!local || !Taken().Take(local->port, peer_port_)) continue;
    fd_ = fd;
    local_port_ = local->port;
    break;
  }
  closedir(directory);
  Sample();
}

SocketBytes::~SocketBytes() {
  if (fd_ >= 0) Taken().GiveBack(local_port_, peer_port_);
}

void SocketBytes::Sample() {
  if (fd_ < 0) return;
  const std::optional<Endpoint> local = LocalOf(fd_);
  // The number may belong to another file by now.
  if (PeerOf(fd_) != Endpoint{host_, peer_port_} || !local || local->port != local_port_) return;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  received_ = info.tcpi_bytes_received;
  sent_ = size >= offsetof(tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans
              ? info.tcpi_bytes_sent - info.tcpi_bytes_retrans
              : info.tcpi_bytes_acked;  // kernels before 4.19
}

}  // namespace stagecoach
