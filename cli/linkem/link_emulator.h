// A TCP proxy in user space that makes loopback behave like slow links between hosts. Needs no root.
//
// Every link {from, to} has one listening port on 127.0.0.1. A connection to it is forwarded to `target`; what `from`
// sends goes through the clock of direction from->to, the answers through the clock of to->from. Both directions of a
// pair exist once, however many connections and however they were opened. Half-close is forwarded; a reset is too. An
// end may have an uplink and a downlink, which its links share evenly.
//
//   listener --accept--> source <== path(from->to) ==> target
//
// Threading: one thread, which calls Run. Stop may be called from any thread and from a signal handler.
// Errors: INVALID_ARGUMENT (address), UNAVAILABLE (cannot bind), RESOURCE_EXHAUSTED (descriptors).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/linkem/link_clock.h"
#include "cli/linkem/link_path.h"
#include "cli/linkem/proxied_connection.h"

namespace stagecoach {

struct EmulatedLink {
  std::string from, to;      // names of the two ends
  uint16_t listen_port = 0;  // 0 = any
  // "127.0.0.1:5000", or "@FILE": read at each connection; the file holds a port or an address.
  std::string target;
  LinkShape shape;  // of the direction from -> to; of the way back too, if no link {to, from} has another
};

struct EmulatedEnd {
  std::string name;
  double up_bytes_per_second = 0, down_bytes_per_second = 0;  // of all its links together; 0 = as fast as they go
};

class LinkEmulator {
 public:
  static absl::StatusOr<std::unique_ptr<LinkEmulator>> Create(std::vector<EmulatedLink> links, uint64_t seed,
                                                              const std::vector<EmulatedEnd>& ends = {});
  ~LinkEmulator();
  LinkEmulator(const LinkEmulator&) = delete;
  LinkEmulator& operator=(const LinkEmulator&) = delete;

  // Port of links[i].
  uint16_t port(size_t i) const { return listeners_[i].port; }
  // Forwards until Stop.
  absl::Status Run();
  void Stop();

  struct DirectionCount {
    std::string from, to;
    uint64_t bytes = 0, losses = 0;
  };
  // Call after Run has returned.
  std::vector<DirectionCount> Counts() const;

 private:
  struct Listener {
    int fd = -1;
    uint16_t port = 0;
    EmulatedLink link;
  };
  // One direction of a pair: its clock and path, and the flows that take turns on it.
  struct SharedDirection {
    SharedDirection(std::string from_end, std::string to_end, const LinkClock& pair, LinkClock* up, LinkClock* down)
        : from(std::move(from_end)), to(std::move(to_end)), clock(pair), path(up, &clock, down) {}

    std::string from, to;
    LinkClock clock;
    LinkPath path;
    std::vector<Flow*> flows;
    size_t next = 0;  // round robin
  };
  struct EndClocks {
    std::unique_ptr<LinkClock> up, down;  // null: not limited
  };

  LinkEmulator() = default;
  absl::Status Listen(EmulatedLink link);
  void AddDirection(const std::string& from, const std::string& to, const LinkShape& shape, uint64_t seed);
  void Accept(const Listener& listener);
  void TakeIn(LinkTime now);
  bool TakePiece(SharedDirection& direction, LinkTime now);
  void DropClosed();
  LinkTime NextWake(LinkTime now) const;
  void ArmTimer(LinkTime when);

  int epoll_ = -1;
  int timer_ = -1;
  int stop_event_ = -1;
  std::vector<Listener> listeners_;
  std::map<std::string, EndClocks> ends_;  // of every name; entries stay where they are
  std::map<std::pair<std::string, std::string>, std::unique_ptr<SharedDirection>> directions_;
  std::vector<SharedDirection*> turns_;  // all directions
  size_t turn_ = 0;  // whose turn it is: directions that share an uplink must not wait for the first
  std::list<std::unique_ptr<ProxiedConnection>> connections_;
};

// Host and port of a target: "host:port" with a numeric IPv4 address or "localhost", or "@FILE".
absl::StatusOr<std::pair<std::string, uint16_t>> ResolveTarget(const std::string& target);

}  // namespace stagecoach
