#include "common/averaging/shard_map.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

absl::Status CheckCuts(absl::Span<const StageCuts> clusters, size_t c) {
  const StageCuts& cuts = clusters[c];
  const bool ascending = std::adjacent_find(cuts.begin(), cuts.end(), std::greater_equal<>()) == cuts.end();
  if (cuts.size() < 2 || cuts.front() != 0 || !ascending || cuts.back() != clusters[0].back()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the stage cuts of a cluster must ascend from 0 to the number of units, which all clusters share "
        "(first cluster: ",
        clusters[0].empty() ? 0 : clusters[0].back(), "): cluster=", c, " cuts=", absl::StrJoin(cuts, ",")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Shard>> RefineCuts(absl::Span<const StageCuts> clusters) {
  if (clusters.empty() || clusters.size() > kMaxClusters) {
    return absl::InvalidArgumentError(
        absl::StrCat("averaging takes 1 to ", kMaxClusters, " clusters: clusters=", clusters.size()));
  }
  if (clusters[0].empty()) return absl::InvalidArgumentError("a cluster without stage cuts: cluster=0");
  std::set<uint32_t> cuts;
  for (size_t c = 0; c < clusters.size(); ++c) {
    if (const absl::Status status = CheckCuts(clusters, c); !status.ok()) return status;
    cuts.insert(clusters[c].begin(), clusters[c].end());
  }
  std::vector<Shard> shards;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    Shard shard{*cut, *std::next(cut), {}};
    for (const StageCuts& stages : clusters) {
      const auto behind = std::upper_bound(stages.begin(), stages.end(), shard.begin);
      shard.owner.push_back(static_cast<uint32_t>(behind - stages.begin() - 1));
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::vector<uint32_t> ShardsOfStage(absl::Span<const Shard> shards, uint32_t cluster, uint32_t stage) {
  std::vector<uint32_t> numbers;
  for (uint32_t s = 0; s < shards.size(); ++s) {
    if (shards[s].owner[cluster] == stage) numbers.push_back(s);
  }
  return numbers;
}

uint64_t ShardParameters(const Shard& shard, absl::Span<const uint64_t> unit_parameters) {
  uint64_t parameters = 0;
  for (uint32_t unit = shard.begin; unit < shard.end; ++unit) parameters += unit_parameters[unit];
  return parameters;
}

}  // namespace stagecoach
