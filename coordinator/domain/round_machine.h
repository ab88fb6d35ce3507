// The coordinator's side of averaging: opens rounds, decides who contributes with which weight, watches the exchange,
// compares hashes, commits. No tensor passes here: contributors, weights, hashes.
//
//   COLLECT --all ready, or quorum + grace--> EXCHANGE --all owners proposed--> (verify) --majority a shard--> JOURNAL
//      ^            |  ^ abort, attempt + 1        |  peer broken, no majority, time out                          |
//      |            |  '---------------------------'                                                              |
//      +-- skipped: nobody has tokens, too few survivors, 3 attempts        commit journaled: COMMIT, next round --+
//
// deterministic: all clusters of the plan take part, always; an attempt that broke is repeated when all are there
// again. elastic: quorum and grace; who is late gets the result (kRebase) and contributes to a later round with all its
// tokens: after 2 missed rounds at half weight, after 4 its difference is dropped (kResync).
//
// Threading: a value, confined to the coordinator loop. Time is an argument. Effects are to be carried out in order; a
// kJournal effect is acknowledged by OnJournaled before anything is committed.
// Errors: messages of other rounds, attempts and epochs are ignored; late messages are normal.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/averaging/contribution_weights.h"
#include "common/averaging/shard_map.h"

namespace stagecoach {

enum class RoundMode : uint8_t { kDeterministic = 1, kElastic = 2 };

struct RoundContributor {
  std::string cluster;
  uint64_t epoch = 0;              // of its plan
  uint64_t step = 0;               // t_c: its own step whose version takes part
  uint64_t tokens = 0, steps = 0;  // since its last contribution
  float weight = 0;
};

struct RoundEffect {
  enum class Kind : uint8_t {
    kOpen,     // to all clusters: announce the version that takes part
    kFix,      // to the contributors: who, weights, shards; exchange
    kAbort,    // to the contributors: drop partial sums of this attempt
    kJournal,  // durably: contributors and hashes; then OnJournaled
    kCommit,   // to the contributors: hashes[shard] is valid
    kFetch,    // `cluster` holds other bits of `shard`: it fetches them from another owner, and is reported
    kRebase,   // `cluster` did not take part: it fetches theta, W += theta' - theta
    kResync,   // likewise, and its difference is dropped: lost work, to be logged
    kSkip,     // the round ends without a result; theta stays
    kPause,    // twice in a row no majority: the run must not go on
  };
  Kind kind;
  uint64_t round = 0;
  uint32_t attempt = 0;
  std::vector<RoundContributor> contributors;  // ascending cluster id: the ranks of the exchange
  std::vector<Shard> shards;                   // kFix: owners by rank
  std::vector<std::string> hashes;             // kJournal, kCommit: of each shard
  std::string cluster;
  uint32_t shard = 0;
  std::string reason;  // kAbort, kSkip, kPause, kFetch
};
using RoundEffects = std::vector<RoundEffect>;

class RoundMachine {
 public:
  using Time = std::chrono::nanoseconds;
  struct Options {
    RoundMode mode = RoundMode::kElastic;
    WeightRule weights = WeightRule::kTokens;
    size_t quorum = 0;          // clusters; 0: half of them, rounded up, at least 2
    double grace_share = 0.25;  // of the last round's interval
    Time max_grace = std::chrono::seconds(60);
    Time exchange_timeout = std::chrono::minutes(10);  // of one attempt; far above any round that hides
    uint32_t max_attempts = 3;
  };
  enum class Phase : uint8_t { kCollect, kExchange, kJournal, kPaused };

  explicit RoundMachine(const Options& options) : options_(options) {}

  RoundEffects Start(Time now, uint64_t first_round = 1);  // opens it
  // INVALID_ARGUMENT: cuts that do not fit the other clusters'. A cluster that joins while a round is open receives its
  // result and contributes from the next one on. Known name: a new plan; it must announce itself again.
  absl::Status AddCluster(absl::string_view cluster, uint64_t epoch, const StageCuts& cuts);
  RoundEffects RemoveCluster(Time now, absl::string_view cluster);  // died or left
  RoundEffects OnReady(Time now, absl::string_view cluster, uint64_t epoch, uint64_t round, uint64_t step,
                       uint64_t tokens, uint64_t steps);
  RoundEffects OnProposed(Time now, absl::string_view cluster, uint64_t round, uint32_t attempt, uint32_t shard,
                          absl::string_view hash);
  // An owner of `reporter` lost its partner in `broken` (or found its own contribution not finite: broken == reporter).
  RoundEffects OnBroken(Time now, absl::string_view reporter, uint64_t round, uint32_t attempt,
                        absl::string_view broken);
  RoundEffects OnJournaled(Time now, uint64_t round);
  RoundEffects OnTick(Time now);

  Phase phase() const { return phase_; }
  uint64_t round() const { return round_; }
  uint32_t attempt() const { return attempt_; }
  size_t Quorum() const;
  Time Grace() const;

 private:
  struct Cluster {
    uint64_t epoch = 0;
    StageCuts cuts;
    uint64_t joined_round = 0;
    uint32_t missed = 0;  // rounds that were committed without it, since its last contribution
    bool ready = false;
    uint64_t step = 0, tokens = 0, steps = 0;
  };
  RoundEffects OpenNext(Time now);
  RoundEffects FixIfCollected(Time now);
  RoundEffects Fix(Time now, const std::set<std::string>& without);
  RoundEffects AbortAttempt(Time now, const std::string& reason, const std::set<std::string>& without);
  RoundEffects Verify(Time now);
  RoundEffects Skip(Time now, const std::string& reason);
  bool IsContributor(absl::string_view cluster) const;
  RoundEffect Make(RoundEffect::Kind kind) const;

  const Options options_;
  Phase phase_ = Phase::kCollect;
  bool started_ = false;
  uint64_t round_ = 0;
  uint32_t attempt_ = 0;
  std::map<std::string, Cluster> clusters_;
  std::set<std::string> excluded_;  // from this round, after a broken attempt
  Time opened_{0}, last_interval_{0}, quorum_since_{Time::max()}, fixed_{0};
  std::vector<RoundContributor> contributors_;
  size_t num_shards_ = 0;
  std::map<uint32_t, std::map<std::string, std::string>> proposed_;  // shard, cluster: hash
  std::vector<std::string> hashes_;                                  // of the majority
  std::vector<RoundEffect> odd_;                                     // kFetch, after the commit
  uint32_t without_majority_ = 0;                                    // attempts in a row
};

}  // namespace stagecoach
