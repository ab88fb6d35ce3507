// The two streams (one a direction) between this worker and each partner that owns a shard with it.
//
// Threading: everything on the owner's loop (`work`); streams live on the links' loop and are reached by messages. The
// two loops may be the same. Errors: on_lost carries what the link says; a lost partner stays lost until opened again.
// Ownership: loops and the link factory outlive the object and the payloads that it delivered; after destruction no
// callback runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/averaging/piece_exchange.h"
#include "common/event_loop.h"
#include "worker/link/peer_link.h"

namespace stagecoach {

constexpr size_t kMaxPieceBytes = size_t{256} << 10;  // 21 ms at 100 Mbit/s
constexpr uint32_t kMaxPiecesHeld = 64;               // a partner: 4 MiB of early pieces; then flow control holds it

struct AveragingPartner {
  std::string name, address;
  StreamIdentity outgoing, incoming;  // direction kAveraging, cluster and cut of the sender
};

class PartnerStreams {
 public:
  struct Options {
    EventLoop* work = nullptr;
    EventLoop* links_loop = nullptr;  // of `links`
    LinkFactory* links = nullptr;
    double connect_seconds = 15.0;
    std::function<void(const std::string& partner, LinkFrame piece)> on_piece;
    std::function<void(const std::string& partner)> on_ready;  // the next piece may be handed over
    std::function<void(const std::string& partner, const absl::Status& status)> on_lost;
  };
  explicit PartnerStreams(Options options);
  ~PartnerStreams();

  void Open(const AveragingPartner& partner);  // replaces streams of the same name
  void Close(const std::string& partner);
  bool IsOpen(const std::string& partner) const { return partners_.count(partner) > 0; }  // not lost, not closed
  bool Ready(const std::string& partner) const;  // open, and no piece is waiting for the transport
  void Send(const std::string& partner, OutgoingPiece piece);
  uint64_t bytes_sent() const { return bytes_sent_; }  // payload

 private:
  struct Streams;
  struct Owner;
  const std::shared_ptr<Owner> owner_;
  std::map<std::string, std::shared_ptr<Streams>> partners_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace stagecoach
