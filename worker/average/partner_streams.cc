#include "worker/average/partner_streams.h"

#include <utility>
#include <vector>

namespace stagecoach {
namespace {

// Payload bytes that the exchange encoded, lent to the link.
class PieceBuffer final : public HostBuffer {
 public:
  explicit PieceBuffer(PiecePayload payload) : payload_(std::move(payload)) {
    data_ = const_cast<uint8_t*>(payload_->data());  // a BufferRef is read only
    size_ = payload_->size();
  }

 private:
  const PiecePayload payload_;
};

}  // namespace

// What callbacks find when the object may be gone. Work loop only, but for the options.
struct PartnerStreams::Owner {
  Options options;
  bool alive = true;
};

struct PartnerStreams::Streams {
  std::string name;
  // Work loop.
  bool open = true, sending = false, accepted = false;
  // Links' loop.
  std::unique_ptr<FrameSender> sender;
  std::unique_ptr<FrameReceiver> receiver;
};

PartnerStreams::PartnerStreams(Options options) : owner_(std::make_shared<Owner>()) {
  owner_->options = std::move(options);
}

PartnerStreams::~PartnerStreams() {
  owner_->alive = false;
  while (!partners_.empty()) Close(partners_.begin()->first);
}

void PartnerStreams::Open(const AveragingPartner& partner) {
  Close(partner.name);
  auto streams = std::make_shared<Streams>();
  streams->name = partner.name;
  partners_[partner.name] = streams;
  // Runs `function` on the work loop if the streams are still those of a living owner.
  const auto on_work = [owner = owner_, streams](std::function<void(Owner&, Streams&)> function) {
    owner->options.work->Post([owner, streams, function = std::move(function)] {
      if (owner->alive && streams->open) function(*owner, *streams);
    });
  };
  const auto lost = [on_work](absl::Status status) {
    on_work([status = std::move(status)](Owner& owner, Streams& own) {
      own.open = false;
      owner.options.on_lost(own.name, status);
    });
  };
  SenderCallbacks sender;
  sender.on_accepted = [on_work] {
    on_work([](Owner& owner, Streams& own) {
      own.accepted = true;
      owner.options.on_ready(own.name);
    });
  };
  sender.on_sent = [on_work] {
    on_work([](Owner& owner, Streams& own) {
      own.sending = false;
      owner.options.on_ready(own.name);
    });
  };
  sender.on_closed = lost;
  ReceiverCallbacks receiver;
  receiver.on_frame = [on_work](LinkFrame frame) {
    on_work([frame = std::move(frame)](Owner& owner, Streams& own) { owner.options.on_piece(own.name, frame); });
  };
  receiver.on_closed = lost;
  owner_->options.links_loop->Post(
      [owner = owner_, streams, partner, sender = std::move(sender), receiver = std::move(receiver)]() mutable {
        ReceiveLimits limits;
        limits.max_frames_held = kMaxPiecesHeld;
        limits.max_piece_bytes = kMaxPieceBytes;
        LinkFactory* const links = owner->options.links;
        streams->receiver = links->OpenReceiver(partner.incoming, 0, limits, std::move(receiver));
        streams->sender =
            links->OpenSender(partner.address, partner.outgoing, 0, owner->options.connect_seconds, std::move(sender));
      });
}

void PartnerStreams::Close(const std::string& partner) {
  const auto found = partners_.find(partner);
  if (found == partners_.end()) return;
  found->second->open = false;
  owner_->options.links_loop->Post([streams = found->second] {
    streams->sender.reset();
    streams->receiver.reset();
  });
  partners_.erase(found);
}

bool PartnerStreams::Ready(const std::string& partner) const {
  const auto found = partners_.find(partner);
  return found != partners_.end() && found->second->open && found->second->accepted && !found->second->sending;
}

void PartnerStreams::Send(const std::string& partner, OutgoingPiece piece) {
  const std::shared_ptr<Streams>& streams = partners_.at(partner);
  streams->sending = true;
  bytes_sent_ += piece.payload->size();
  LinkFrame frame;
  frame.kind = FrameKind::kPiece;
  frame.n = piece.header.round;
  frame.piece = piece.header;
  frame.payload = std::make_shared<PieceBuffer>(std::move(piece.payload));
  owner_->options.links_loop->Post([streams, frame = std::move(frame)]() mutable {
    if (streams->sender != nullptr) streams->sender->Send(std::move(frame));
  });
}

}  // namespace stagecoach
