// The rounds between the clusters of a run, in one process: all owners of every shard hand their pieces to each other
// directly. The arithmetic is that of common/averaging; what carries it (links, attempts, the coordinator) is not here.
//
// Threading: one thread. Errors: aborts the process on terms that do not fit together, or weights that are not finite
// (a run would have ended there).
#pragma once

#include <cstdint>
#include <vector>

#include "common/averaging/round_exchange.h"
#include "model/run_config.h"

namespace stagecoach {

class OracleRounds {
 public:
  // `configs`: of every cluster. `common`: packed weights of the whole model that all start from (packed_parameters.h).
  // `unit_parameters`: how many of them each unit has.
  OracleRounds(const std::vector<RunConfig>& configs, const std::vector<float>& common,
               const std::vector<uint64_t>& unit_parameters);

  // The rounds that follow have the shards of these cuts (of every cluster); what goes from round to round is kept.
  void TakeUpCuts(const std::vector<StageCuts>& cuts);

  // `pinned`: packed weights of each cluster. Returns the new common weights.
  std::vector<float> Average(const std::vector<std::vector<float>>& pinned);

  // weights becomes W + (theta - pinned), or theta.
  static void Enter(const std::vector<float>& theta, const std::vector<float>& pinned, bool replace,
                    std::vector<float>* weights);

 private:
  struct Place {  // of a shard in the packed weights
    uint64_t first = 0, count = 0;
  };
  void Split(const std::vector<CommonShard>& before, std::vector<float> CommonShard::*part,
             std::vector<CommonShard>* now) const;
  void AverageShard(uint32_t shard, const std::vector<std::vector<float>>& pinned);

  const AveragingConfig averaging_;
  const uint32_t clusters_;
  const std::vector<uint64_t> unit_parameters_;
  std::vector<StageCuts> cuts_;
  std::vector<Place> places_;
  std::vector<std::vector<CommonShard>> common_;  // cluster, shard
  uint64_t round_ = 0;
};

}  // namespace stagecoach
