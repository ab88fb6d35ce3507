// Clusters that average in virtual time: every piece takes a random delay, pieces overtake each other, owners die. The
// coordinator is the least that closes a round: abort and retry with the survivors, compare hashes, commit.
//
// Threading: one thread. All randomness is a function of the seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/averaging/round_exchange.h"
#include "common/averaging/shard_map.h"
#include "common/counter_rng.h"

namespace stagecoach::testing {

struct SimRoundOptions {
  AveragingCodec codec = AveragingCodec::kFp32;
  ExchangeMethod method = ExchangeMethod::kOneShot;
  OuterOptimizer outer;
  bool error_feedback = false;
  uint64_t piece_parameters = 256;
  // Kills the whole cluster when so many events have happened in the round.
  std::optional<uint32_t> victim;
  uint64_t kill_at_event = 0;
};

struct SimRoundResult {
  bool committed = false;
  uint32_t attempts = 0;
  uint64_t events = 0;
  std::set<std::string> hashes;  // different ones over all shards' owners: one for each shard is right
  size_t shards = 0;
  std::vector<std::map<uint32_t, uint64_t>> bytes;  // [cluster][shard] payload bytes sent in the last attempt
};

class SimFleet {
 public:
  SimFleet(uint64_t seed, std::vector<StageCuts> cuts, std::vector<uint64_t> unit_parameters);

  // Local training: every cluster's weights move by something of its own.
  void Train(float scale);
  SimRoundResult Round(const std::vector<uint64_t>& tokens, const SimRoundOptions& options);

  size_t clusters() const { return weights_.size(); }
  std::vector<float>& weights(uint32_t cluster) { return weights_[cluster]; }
  CommonShard& shard(uint32_t cluster, uint32_t shard) { return common_[cluster][shard]; }
  const std::vector<Shard>& shards() const { return shards_; }
  uint64_t first_parameter(uint32_t shard) const { return first_[shard]; }
  uint64_t parameters(uint32_t shard) const { return ShardParameters(shards_[shard], unit_parameters_); }
  std::vector<float> Theta(uint32_t cluster) const;
  bool alive(uint32_t cluster) const { return dead_.count(cluster) == 0; }

 private:
  struct Attempt;
  uint32_t Random(uint32_t below);
  ExchangeTerms TermsOf(uint32_t shard, const std::vector<uint32_t>& members, const std::vector<uint64_t>& tokens,
                        const SimRoundOptions& options) const;
  // True: all owners of all shards have proposed.
  bool RunAttempt(const std::vector<uint32_t>& members, const std::vector<uint64_t>& tokens,
                  const SimRoundOptions& options, SimRoundResult* result, Attempt* attempt);

  const uint64_t seed_;
  uint64_t word_ = 0;
  std::vector<Shard> shards_;
  std::vector<uint64_t> unit_parameters_, first_;
  std::vector<std::vector<float>> weights_;       // whole models
  std::vector<std::vector<CommonShard>> common_;  // [cluster][shard]
  std::set<uint32_t> dead_;
  uint64_t round_ = 0;
  uint32_t attempt_ = 0;
};

}  // namespace stagecoach::testing
