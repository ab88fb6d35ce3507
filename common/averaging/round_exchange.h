// One owner of one shard in one attempt (r, a) at a round: exchanges, computes the new common weights, reports their
// hash, and takes them over only when the round is committed. Each piece of the sum goes through the outer step and
// into the hash as soon as it is there, so that little is left to do when the last one comes.
//
//   Begin --> kExchanging --all pieces--> kProposed --Commit(hash)--> kCommitted: theta, v, residual are the new ones
//                |   \--a peer breaks, a value is not finite--> kFailed
//                +--Abort (from anywhere but kCommitted)--> kAborted: nothing has changed, partial sums are gone
//
// The next attempt is a new object with attempt + 1, the survivors and their weights.
//
// Threading: one thread at a time; heavy work (encode, sum, outer step, hash) happens in OnPiece and NextSend.
// Errors: INVALID_ARGUMENT (terms), FAILED_PRECONDITION (commit of something else).
// Ownership: the shard and the memory behind `pinned` outlive the object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/averaging/piece_exchange.h"
#include "common/averaging/shard_hash.h"

namespace stagecoach {

// The common weights of a shard after the last committed round, as its owner keeps them.
struct CommonShard {
  std::vector<float> theta;
  std::vector<float> v;         // empty unless the outer optimizer has momentum
  std::vector<float> residual;  // empty unless error feedback is on
  // Memory of the next round; the values mean nothing between rounds. Kept because nothing is sent while 4 bytes a
  // parameter are mapped and zeroed: 20 ms and more for 8 M parameters.
  std::vector<float> next_theta, next_v, next_residual;
};

class RoundExchange {
 public:
  enum class Phase : uint8_t { kExchanging, kProposed, kCommitted, kAborted, kFailed };

  // `pinned` reads W^(t_c), the immutable version that takes part. Missing v and residual start at 0.
  static absl::StatusOr<std::unique_ptr<RoundExchange>> Begin(const ExchangeTerms& terms, uint32_t rank,
                                                              CommonShard* shard, ReadContribution pinned);

  PieceVerdict OnPiece(uint32_t from, const PieceHeader& header, absl::Span<const uint8_t> payload);
  bool HasSend(uint32_t to) const;
  std::optional<OutgoingPiece> NextSend(uint32_t to);
  // The connection to this rank is gone. A result that is complete already stays valid.
  void OnPeerBroken(uint32_t rank);
  // `hash`: what the coordinator found at the majority. Anything but our own: fetch the shard from another owner.
  absl::Status Commit(uint64_t round, uint32_t attempt, absl::string_view hash);
  void Abort(uint64_t round, uint32_t attempt);  // of another attempt: ignored

  Phase phase() const { return phase_; }
  const absl::Status& failure() const { return failure_; }           // kFailed: why
  std::optional<uint32_t> broken_rank() const { return broken_; }    // kFailed: who, if it was a peer
  const std::string& hash() const { return hash_; }                  // from kProposed on
  absl::Span<const float> proposed_theta() const { return theta_; }  // in kProposed
  const ExchangeTerms& terms() const { return terms_; }
  uint64_t bytes_sent() const { return bytes_sent_; }  // payload

 private:
  RoundExchange(const ExchangeTerms& terms, uint32_t rank, CommonShard* shard);
  // Takes over what of the sum is final; proposes if that is all.
  void TakeSums();
  // The mean difference in `range` of the sum becomes theta'.
  void StepTo(const ParameterRange& range);
  void Fail(absl::Status status, std::optional<uint32_t> rank);
  // Ends the exchange; its memory goes back to the shard.
  void DropWork();

  const ExchangeTerms terms_;
  const uint32_t rank_;
  CommonShard* const shard_;
  Phase phase_ = Phase::kExchanging;
  std::unique_ptr<PieceExchange> exchange_;
  std::vector<float> theta_, v_;  // proposed; v_ in the making before
  ShardHash running_hash_;
  std::vector<float> mean_delta_;  // scratch
  std::string hash_;
  absl::Status failure_;
  std::optional<uint32_t> broken_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace stagecoach
