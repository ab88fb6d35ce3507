// The common refinement of the clusters' stage cuts: which parameters two or more workers average with each other.
//
//   cuts = sorted union over clusters of their stage cuts;  shard s = units [cuts[s], cuts[s+1])
//   owner(s, c) = the stage of cluster c that contains shard s;  ring(s) = owners by ascending cluster
//
// A worker owns the union of the shards inside its stage; nobody needs a unit that it does not hold. There are at most
// 1 + sum over clusters of (stages - 1) shards. Clusters are numbered by ascending id.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT names the cluster whose cuts do not fit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace stagecoach {

// Stage i of a cluster holds the units [cuts[i], cuts[i+1]); cuts[0] is 0 and the last entry the number of units.
using StageCuts = std::vector<uint32_t>;

struct Shard {
  uint32_t begin = 0, end = 0;  // units
  std::vector<uint32_t> owner;  // of each cluster: the stage that holds these units
};

// Most clusters of one run: a round is planned per shard and every shard lists them all.
constexpr size_t kMaxClusters = 64;

absl::StatusOr<std::vector<Shard>> RefineCuts(absl::Span<const StageCuts> clusters);

// Numbers of the shards that `stage` of `cluster` owns, ascending: one contiguous range.
std::vector<uint32_t> ShardsOfStage(absl::Span<const Shard> shards, uint32_t cluster, uint32_t stage);

// Parameters of a shard; unit_parameters: averaged parameters of each unit (frozen and private ones left out).
uint64_t ShardParameters(const Shard& shard, absl::Span<const uint64_t> unit_parameters);

}  // namespace stagecoach
