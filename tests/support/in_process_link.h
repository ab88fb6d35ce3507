// Streams between stages of one process, for tests: the same contract as the gRPC link, without sockets. Senders and
// receivers find each other by identity; the address is ignored.
//
// Threading: as peer_link.h; each factory has its own loop. The network's state has one leaf mutex.
// Ownership: factories and streams share the network; loops outlive everything that was opened on them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/event_loop.h"
#include "worker/link/peer_link.h"

namespace stagecoach {

class InProcessNetwork {
 public:
  InProcessNetwork();
  ~InProcessNetwork();
  // Streams opened through the result call back on `loop`.
  std::unique_ptr<LinkFactory> MakeFactory(EventLoop* loop);
  // What was refused or dropped, by reason (worker/tensor/reject_reason.h).
  std::map<std::string, uint64_t> rejections() const;

 private:
  struct State;
  class Sender;
  class Receiver;
  class Factory;
  const std::shared_ptr<State> state_;
};

}  // namespace stagecoach
