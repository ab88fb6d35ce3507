// Serves the exchanges of a worker's shards over its partner streams: offers what arrives, sends what is due in turn,
// paced beside the pipeline's frames, and says when an exchange has a result or has failed.
//
//   OpenPartner ... Begin(exchange of shard s) -> on_settled(s): PROPOSED or FAILED -> Commit | Abort -> the next
//   attempt
//
// Pieces of an attempt that was not begun here yet are kept (at most kMaxEarlyPieces a partner) and offered at Begin.
//
// Threading: everything on the loop `work`, callbacks too; sums, hashes and codecs run there, so it is not the loop of
// a pipeline's frames. Errors: see RoundExchange. Ownership: as partner_streams.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/averaging/round_exchange.h"
#include "common/averaging/uplink_pacer.h"
#include "worker/average/partner_streams.h"

namespace stagecoach {

// Far above what flow control lets through on a real link (kMaxPiecesHeld); bounds a link without flow control.
constexpr size_t kMaxEarlyPieces = 4096;

class RoundCarrier {
 public:
  struct Options {
    EventLoop* work = nullptr;
    EventLoop* links_loop = nullptr;
    LinkFactory* links = nullptr;
    UplinkPacer::Options pacer;
    double connect_seconds = 15.0;
    std::function<void(const RoundExchange& exchange)> on_settled;
    std::function<void(const std::string& partner, const absl::Status& status)> on_lost;
  };
  explicit RoundCarrier(Options options);
  ~RoundCarrier();

  void OpenPartner(const AveragingPartner& partner) { streams_->Open(partner); }
  void ClosePartner(const std::string& partner);
  // `names`: partner of each rank; our own rank is empty. Replaces an attempt at the same shard, which is aborted.
  void Begin(std::unique_ptr<RoundExchange> exchange, std::vector<std::string> names);
  // NOT_FOUND: no attempt at this shard.
  absl::Status Commit(uint32_t shard, uint64_t round, uint32_t attempt, absl::string_view hash);
  void Abort(uint64_t round, uint32_t attempt);

  // A frame of the pipeline has been sent by this worker: pieces take their share only.
  void OnPipelineFrame() { pacer_.OnFrame(options_.work->Now()); }
  void SetUplink(double bytes_per_second) { pacer_.SetUplink(bytes_per_second); }

  uint64_t bytes_sent() const { return streams_->bytes_sent(); }
  // Pieces that were not taken, by verdict.
  uint64_t dropped(PieceVerdict verdict) const;

 private:
  struct Served {
    std::unique_ptr<RoundExchange> exchange;
    std::vector<std::string> names;
    bool settled = false;
  };
  void OnPiece(const std::string& partner, const LinkFrame& frame);
  void OnLost(const std::string& partner, const absl::Status& status);
  // Anything but kEarly is final.
  PieceVerdict Offer(const std::string& partner, const LinkFrame& frame);
  void Settle(Served* served);
  void Pump();
  bool SendOne();

  const Options options_;
  UplinkPacer pacer_;
  std::map<uint32_t, Served> served_;                       // by shard
  std::map<uint32_t, std::pair<uint64_t, uint32_t>> past_;  // of each shard: the last attempt that is over
  std::map<std::string, std::deque<LinkFrame>> early_;
  std::map<PieceVerdict, uint64_t> dropped_;
  uint32_t turn_shard_ = 0, turn_rank_ = 0;  // of the last piece: exchanges and partners take turns
  bool timer_set_ = false;
  std::unique_ptr<PartnerStreams> streams_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace stagecoach
