// C workers of C clusters in one process, each with a loop for its links and one for its rounds, joined in-process or
// by gRPC over loopback. They average one shard as a coordinator would let them.
//
// Threading: tests call from their own thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/link_ends.h"
#include "worker/average/round_carrier.h"

namespace stagecoach {

class AveragingEnds {
 public:
  struct Owner {
    ThreadEventLoop links_loop{"links"}, work{"work"};
    std::shared_ptr<HostBufferPool> pool = HostBufferPool::Create(kTestPoolBytes);
    std::unique_ptr<GrpcLinkFactory> grpc;
    std::unique_ptr<LinkFactory> in_process;
    std::unique_ptr<RoundCarrier> carrier;
    CommonShard shard;
    std::vector<float> pinned;
    std::vector<std::string> lost;
    RoundExchange::Phase phase = RoundExchange::Phase::kExchanging;
    std::string hash;
    int settled = 0;
    LinkFactory* links() { return grpc ? static_cast<LinkFactory*>(grpc.get()) : in_process.get(); }
  };

  AveragingEnds(LinkKind kind, uint32_t owners, double uplink_bytes_per_second = 0) {
    for (uint32_t i = 0; i < owners; ++i) {
      owners_.push_back(std::make_unique<Owner>());
      Owner& owner = *owners_.back();
      if (kind == LinkKind::kGrpc) {
        GrpcLinkOptions options;
        options.loop = &owner.links_loop;
        options.pool = owner.pool;
        options.incarnation = 100 + i;
        owner.grpc = *GrpcLinkFactory::Create(std::move(options));
      } else {
        owner.in_process = network_.MakeFactory(&owner.links_loop);
      }
    }
    for (uint32_t i = 0; i < owners; ++i) {
      OnLoop(&owners_[i]->work, [&] { StartCarrier(i, uplink_bytes_per_second); });
    }
  }
  ~AveragingEnds() {
    for (const auto& owner : owners_) {
      OnLoop(&owner->work, [&] { owner->carrier.reset(); });
      OnLoop(&owner->links_loop, [] {});
    }
    for (const auto& owner : owners_) {
      if (owner->grpc) owner->grpc->Shutdown();
    }
    for (const auto& owner : owners_) {
      owner->work.Stop();
      owner->links_loop.Stop();
    }
  }

  Owner& owner(uint32_t i) { return *owners_[i]; }
  Recorder& recorder() { return recorder_; }

  // Begins an attempt at every owner, one after the other in the order given.
  void Begin(const ExchangeTerms& terms, const std::vector<uint32_t>& order) {
    for (const uint32_t i : order) {
      Owner& own = *owners_[i];
      OnLoop(&own.work, [&] {
        auto exchange = RoundExchange::Begin(terms, i, &own.shard, [&own](uint64_t first, absl::Span<float> out) {
          std::copy_n(own.pinned.begin() + static_cast<long>(first), out.size(), out.begin());
        });
        std::vector<std::string> names;
        for (uint32_t rank = 0; rank < owners_.size(); ++rank) names.push_back(rank == i ? "" : Name(rank));
        own.carrier->Begin(*std::move(exchange), std::move(names));
      });
    }
  }
  bool WaitForSettled(int count) {
    return recorder_.WaitUntil([&] {
      for (const auto& owner : owners_) {
        if (owner->settled < count) return false;
      }
      return true;
    });
  }
  uint64_t bytes_sent(uint32_t i) {
    uint64_t bytes = 0;
    OnLoop(&owners_[i]->work, [&] { bytes = owners_[i]->carrier->bytes_sent(); });
    return bytes;
  }
  static std::string Name(uint32_t i) { return "w" + std::to_string(i); }

 private:
  StreamIdentity IdentityOf(uint32_t from, uint32_t to) const {
    StreamIdentity identity;
    identity.run = "test-run";
    identity.cluster = "c" + std::to_string(from);
    identity.epoch = 10 + from;
    identity.sender = Name(from);
    identity.sender_incarnation = 100 + from;
    identity.receiver_incarnation = 100 + to;
    identity.direction = LinkDirection::kAveraging;
    identity.wire_format = 3;
    return identity;
  }
  void StartCarrier(uint32_t i, double uplink) {
    Owner& owner = *owners_[i];
    RoundCarrier::Options options;
    options.work = &owner.work;
    options.links_loop = &owner.links_loop;
    options.links = owner.links();
    options.pacer.uplink_bytes_per_second = uplink;
    options.on_settled = [this, &owner](const RoundExchange& exchange) {
      recorder_.Note([&] {
        owner.phase = exchange.phase();
        owner.hash = exchange.hash();
        ++owner.settled;
      });
    };
    options.on_lost = [this, &owner](const std::string& partner, const absl::Status&) {
      recorder_.Note([&] { owner.lost.push_back(partner); });
    };
    owner.carrier = std::make_unique<RoundCarrier>(std::move(options));
    for (uint32_t other = 0; other < owners_.size(); ++other) {
      if (other == i) continue;
      AveragingPartner partner;
      partner.name = Name(other);
      const Owner& peer = *owners_[other];
      partner.address = peer.grpc ? "127.0.0.1:" + std::to_string(peer.grpc->listen_port()) : "unused:1";
      partner.outgoing = IdentityOf(i, other);
      partner.incoming = IdentityOf(other, i);
      owner.carrier->OpenPartner(partner);
    }
  }

  InProcessNetwork network_;
  Recorder recorder_;
  std::vector<std::unique_ptr<Owner>> owners_;
};

}  // namespace stagecoach
