#include "model/oracle_rounds.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/averaging/apply_rule.h"
#include "common/averaging/contribution_weights.h"

namespace stagecoach {
namespace {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "fatal: rounds of the oracle: %s\n", std::string(status.message()).c_str());
  std::abort();
}

// All of them, in any order: what arrives when does not matter.
void ExchangeAll(const std::vector<std::unique_ptr<RoundExchange>>& owners) {
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t from = 0; from < owners.size(); ++from) {
      for (uint32_t to = 0; to < owners.size(); ++to) {
        while (auto piece = owners[from]->NextSend(to)) {
          owners[to]->OnPiece(from, piece->header, *piece->payload);
          moved = true;
        }
      }
    }
  }
}

}  // namespace

OracleRounds::OracleRounds(const std::vector<RunConfig>& configs, const std::vector<float>& common,
                           const std::vector<uint64_t>& unit_parameters)
    : averaging_(configs[0].averaging),
      clusters_(static_cast<uint32_t>(configs.size())),
      unit_parameters_(unit_parameters),
      common_(configs.size()) {
  for (std::vector<CommonShard>& own : common_) own.emplace_back().theta = common;
  TakeUpCuts(configs[0].cluster_cuts);
}

void OracleRounds::TakeUpCuts(const std::vector<StageCuts>& cuts) {
  if (cuts == cuts_) return;
  cuts_ = cuts;
  const auto shards = RefineCuts(cuts);
  Require(shards.status());
  places_.clear();
  for (const Shard& shard : *shards) {
    const uint64_t first = places_.empty() ? 0 : places_.back().first + places_.back().count;
    places_.push_back({first, ShardParameters(shard, unit_parameters_)});
  }
  for (std::vector<CommonShard>& own : common_) {
    const std::vector<CommonShard> before = std::exchange(own, std::vector<CommonShard>(places_.size()));
    Split(before, &CommonShard::theta, &own);
    // What no round has touched yet is empty.
    if (round_ == 0) continue;
    if (averaging_.outer.HasMomentum()) Split(before, &CommonShard::v, &own);
    if (averaging_.error_feedback) Split(before, &CommonShard::residual, &own);
  }
}

void OracleRounds::Split(const std::vector<CommonShard>& before, std::vector<float> CommonShard::*part,
                         std::vector<CommonShard>* now) const {
  std::vector<float> whole;
  for (const CommonShard& shard : before) whole.insert(whole.end(), (shard.*part).begin(), (shard.*part).end());
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto begin = whole.begin() + static_cast<ptrdiff_t>(places_[i].first);
    ((*now)[i].*part).assign(begin, begin + static_cast<ptrdiff_t>(places_[i].count));
  }
}

std::vector<float> OracleRounds::Average(const std::vector<std::vector<float>>& pinned) {
  ++round_;
  for (uint32_t shard = 0; shard < places_.size(); ++shard) AverageShard(shard, pinned);
  std::vector<float> theta;
  for (const CommonShard& shard : common_[0]) theta.insert(theta.end(), shard.theta.begin(), shard.theta.end());
  return theta;
}

void OracleRounds::AverageShard(uint32_t shard, const std::vector<std::vector<float>>& pinned) {
  const Place place = places_[shard];
  // All clusters have done equally much since the last round.
  const std::vector<float> weights =
      ContributionWeights(WeightRule::kTokens, std::vector<Contribution>(clusters_, Contribution{1, 1}));
  const ExchangeTerms terms =
      TermsOf(averaging_, round_, 1, shard, place.count, weights, std::vector<uint64_t>(clusters_, 1));
  std::vector<std::unique_ptr<RoundExchange>> owners;
  for (uint32_t rank = 0; rank < clusters_; ++rank) {
    const std::vector<float>& own = pinned[rank];
    auto exchange =
        RoundExchange::Begin(terms, rank, &common_[rank][shard], [&own, place](uint64_t first, absl::Span<float> out) {
          std::copy_n(own.data() + place.first + first, out.size(), out.data());
        });
    Require(exchange.status());
    owners.push_back(*std::move(exchange));
  }
  ExchangeAll(owners);
  for (const auto& owner : owners) Require(owner->Commit(round_, 1, owners[0]->hash()));
}

void OracleRounds::Enter(const std::vector<float>& theta, const std::vector<float>& pinned, bool replace,
                         std::vector<float>* weights) {
  ApplyRound(replace ? MergeRule::kReplace : MergeRule::kAdditive, theta, pinned, absl::MakeSpan(*weights));
}

}  // namespace stagecoach
