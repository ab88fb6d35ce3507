#include "bench/link/raw_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace stagecoach {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

double ReceiveRawTcp(int port_fd, uint64_t total, size_t piece) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 1) != 0) return -1;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  if (write(port_fd, &port, sizeof port) != sizeof port) return -1;
  const int connection = accept(listener, nullptr, nullptr);
  std::vector<char> buffer(piece);
  std::chrono::steady_clock::time_point start;
  for (uint64_t got = 0; got < total;) {
    const ssize_t count = read(connection, buffer.data(), buffer.size());
    if (count <= 0) return -1;
    if (got == 0) start = std::chrono::steady_clock::now();
    got += static_cast<uint64_t>(count);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  close(connection);
  close(listener);
  return seconds;
}

bool SendRawTcp(int port, uint64_t total, size_t piece) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(port);
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const std::vector<char> buffer(piece, 'x');
  for (uint64_t sent = 0; sent < total;) {
    const ssize_t count = write(connection, buffer.data(), std::min<uint64_t>(piece, total - sent));
    if (count <= 0) return false;
    sent += static_cast<uint64_t>(count);
  }
  shutdown(connection, SHUT_WR);
  char end;
  while (read(connection, &end, 1) > 0) {
  }
  close(connection);
  return true;
}

}  // namespace stagecoach
