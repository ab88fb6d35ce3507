// How the clusters of a run average: when, and what is the same in every round and shard.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/averaging/exchange_terms.h"
#include "common/round_schedule.h"

namespace stagecoach {

struct AveragingConfig {
  RoundSchedule rounds;
  AveragingCodec codec = AveragingCodec::kFp32;
  bool error_feedback = false;
  OuterOptimizer outer;
};

// Terms of one attempt at one shard: direct for two owners, one-shot for more, equal chunks, so that the bits follow
// from the record alone. `weights` and `epochs` by rank, which is the cluster's number.
ExchangeTerms TermsOf(const AveragingConfig& config, uint64_t round, uint32_t attempt, uint32_t shard,
                      uint64_t parameters, std::vector<float> weights, std::vector<uint64_t> epochs);

}  // namespace stagecoach
