#include "cli/linkem/proxied_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace stagecoach {

bool Flow::ReadPiece(LinkPath& path, LinkTime now, std::vector<char>& scratch) {
  const size_t wanted = std::min({path.quantum(), scratch.size(), path.max_in_flight() - in_flight_});
  const ssize_t count = recv(source_->fd, scratch.data(), wanted, 0);
  if (count < 0) {
    if (errno == EINTR) return true;
    source_->readable = false;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
  if (count == 0) {
    read_end_ = true;
    pieces_.push_back({path.Admit(now, 0), {}});
    return true;
  }
  pieces_.push_back(
      {path.Admit(now, static_cast<size_t>(count)), std::string(scratch.data(), static_cast<size_t>(count))});
  in_flight_ += static_cast<size_t>(count);
  return true;
}

bool Flow::WriteDue(LinkTime now) {
  while (!pieces_.empty() && sink_->writable && pieces_.front().due <= now) {
    Piece& piece = pieces_.front();
    if (piece.bytes.empty()) {
      shutdown(sink_->fd, SHUT_WR);
      write_end_ = true;
      pieces_.pop_front();
      return true;
    }
    const ssize_t count =
        send(sink_->fd, piece.bytes.data() + piece.sent, piece.bytes.size() - piece.sent, MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) continue;
      sink_->writable = false;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    piece.sent += static_cast<size_t>(count);
    in_flight_ -= static_cast<size_t>(count);
    if (piece.sent == piece.bytes.size()) pieces_.pop_front();
  }
  return true;
}

LinkTime Flow::NextDue() const { return pieces_.empty() || !sink_->writable ? LinkTime::max() : pieces_.front().due; }

ProxiedConnection::ProxiedConnection(int source_fd, int target_fd)
    : source{source_fd, false, false, this},
      target{target_fd, false, false, this},
      forward(&source, &target),
      backward(&target, &source) {}

ProxiedConnection::~ProxiedConnection() {
  if (broken_) {  // pass a reset on, so that neither end waits for bytes that will not come
    const linger now{1, 0};
    setsockopt(source.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    setsockopt(target.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(source.fd);
  close(target.fd);
}

void ProxiedConnection::OnEvent(Endpoint& endpoint, uint32_t events) {
  if (&endpoint == &target && !connected_) {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(target.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Break();
    if ((events & EPOLLOUT) == 0) return;  // still connecting: EPOLLHUP is reported before connect() has been answered
    connected_ = true;
  }
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) endpoint.readable = true;
  if ((events & (EPOLLOUT | EPOLLERR)) != 0) endpoint.writable = true;
}

}  // namespace stagecoach
