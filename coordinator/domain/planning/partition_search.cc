#include "coordinator/domain/planning/partition_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "coordinator/domain/planning/chain_cuts.h"
#include "coordinator/domain/planning/latency_search.h"

namespace stagecoach {
namespace {

// Floats of the tables against doubles of the cost model, sums in another order.
constexpr double kRounding = 1 + 1e-6;
// Divisions looked at until all their sets are confirmed; each costs 3^n steps. Reached only where J = 0, whose rate
// depends on latency, bottleneck and update together.
constexpr int kMostRounds = 64;
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

}  // namespace

PartitionSearch::PartitionSearch(const CostModel& costs, std::vector<uint32_t> workers)
    : costs_(costs), scope_{std::move(workers), PointsTried(costs)} {
  bottleneck_ = std::make_unique<SubsetTable>(costs, scope_, SubsetTable::Value::kBottleneck, kUnlimited);
  const size_t num_sets = size_t{1} << scope_.workers.size();
  goodput_.assign(num_sets, 0);
  confirmed_.assign(num_sets, 0);
  draft_of_.assign(num_sets, 0);
  for (uint32_t set = 1; set < num_sets; ++set) SetUpperBound(set);
  if (costs.model().synchronous) Refine();  // every microsecond of latency counts
}

void PartitionSearch::SetUpperBound(uint32_t set) {
  const double bottleneck = bottleneck_->Of(set);
  if (bottleneck == kUnlimited) return;
  double failures = 0;
  for (uint32_t rest = set; rest != 0; rest &= rest - 1) {
    failures += costs_.fleet().workers[scope_.workers[std::countr_zero(rest)]].failures_per_hour;
  }
  goodput_[set] = costs_.Goodput(bottleneck, loop_ ? loop_->Of(set) : 0, 0, failures) * kRounding;
}

// Takes the least latency of every set into account.
void PartitionSearch::Refine() {
  loop_ = std::make_unique<SubsetTable>(costs_, scope_, SubsetTable::Value::kLoop, kUnlimited);
  for (uint32_t set = 1; set < goodput_.size(); ++set) {
    if (confirmed_[set] == 0) SetUpperBound(set);
  }
}

std::optional<ClusterDraft> PartitionSearch::BestChain(uint32_t set) const {
  const std::optional<ClusterDraft> fastest = bottleneck_->Draft(set);
  if (!fastest) return std::nullopt;
  SubsetScope own{{}, scope_.points};
  for (uint32_t rest = set; rest != 0; rest &= rest - 1) own.workers.push_back(scope_.workers[std::countr_zero(rest)]);
  const uint32_t all = (1u << own.workers.size()) - 1;
  double bottleneck = 0;
  for (size_t i = 0; i < fastest->workers.size(); ++i) {
    bottleneck =
        std::max(bottleneck, costs_.StageSeconds(fastest->workers[i], fastest->points[i], fastest->points[i + 1]));
    if (i > 0) {
      bottleneck = std::max(bottleneck, costs_.Edge(fastest->workers[i - 1], fastest->workers[i]).link_seconds);
    }
  }
  std::optional<ClusterDraft> best = fastest;
  const bool latency_counts =
      costs_.model().synchronous || costs_.LoopOf(*fastest) > bottleneck * costs_.assumptions().window;
  if (latency_counts) {
    std::optional<ClusterDraft> traded = TradeLatency(costs_, bottleneck, [&](double cap) {
      return SubsetTable(costs_, own, SubsetTable::Value::kLoop, cap).Draft(all);
    });
    if (traded && costs_.GoodputOf(*traded) > costs_.GoodputOf(*best)) best = std::move(traded);
  }
  // The same order over every cut point, in doubles.
  std::optional<ClusterDraft> refined = CutChain(costs_, best->workers, /*may_skip=*/false);
  if (refined && costs_.GoodputOf(*refined) > costs_.GoodputOf(*best)) best = std::move(refined);
  return best;
}

const ClusterDraft* PartitionSearch::Confirm(uint32_t set) {
  if (confirmed_[set] == 0) {
    std::optional<ClusterDraft> draft = BestChain(set);
    confirmed_[set] = 1;
    goodput_[set] = draft ? costs_.GoodputOf(*draft) : 0;
    draft_of_[set] = static_cast<uint32_t>(drafts_.size());
    drafts_.push_back(draft ? std::move(*draft) : ClusterDraft());
  }
  return &drafts_[draft_of_[set]];
}

// clusters = 0: one layer, any number. Otherwise layer c: exactly c clusters; -infinity where there are none.
std::vector<PartitionSearch::Layer> PartitionSearch::Layers(uint32_t clusters) const {
  const size_t num_sets = goodput_.size();
  std::vector<Layer> layers(clusters + 1);
  for (Layer& layer : layers) {
    layer.value.assign(num_sets, -kUnlimited);
    layer.uses.assign(num_sets, 0);
  }
  if (clusters > 0) std::fill(layers[0].value.begin(), layers[0].value.end(), 0);
  for (uint32_t c = clusters > 0 ? 1 : 0; c <= clusters; ++c) {
    Layer& layer = layers[c];
    const std::vector<double>& less = clusters > 0 ? layers[c - 1].value : layer.value;
    if (clusters == 0) layer.value[0] = 0;
    for (uint32_t set = 1; set < num_sets; ++set) {
      const uint32_t low = set & (~set + 1), others = set ^ low;
      double best = layer.value[others];
      uint32_t uses = 0;
      for (uint32_t more = others;; more = (more - 1) & others) {
        const uint32_t cluster = more | low;
        if (goodput_[cluster] > 0) {
          const double value = goodput_[cluster] + less[set ^ cluster];
          if (value > best) best = value, uses = cluster;
        }
        if (more == 0) break;
      }
      layer.value[set] = best;
      layer.uses[set] = uses;
    }
  }
  return layers;
}

std::vector<double> PartitionSearch::Bounds() const {
  uint32_t smallest = static_cast<uint32_t>(scope_.workers.size());  // members that a cluster has at least
  for (uint32_t set = 1; set < goodput_.size(); ++set) {
    if (goodput_[set] > 0) smallest = std::min(smallest, static_cast<uint32_t>(std::popcount(set)));
  }
  std::vector<double> bounds;
  const auto most = static_cast<uint32_t>(scope_.workers.size()) / smallest;
  for (const Layer& layer : Layers(most)) bounds.push_back(layer.value.back());
  return bounds;
}

Division PartitionSearch::Best(uint32_t clusters) {
  Division best;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::vector<Layer> layers = Layers(clusters);
    const double bound = layers[clusters].value.back();
    if (bound <= 0) return best;
    best.bound = bound;
    Division found;
    uint32_t set = static_cast<uint32_t>(goodput_.size() - 1), c = clusters;
    bool as_hoped = true;
    while (set != 0 && (clusters == 0 || c > 0)) {
      const uint32_t uses = layers[c].uses[set];
      if (uses == 0) {
        set &= set - 1;
        continue;
      }
      const double hoped = goodput_[uses];
      const ClusterDraft draft = *Confirm(uses);
      as_hoped = as_hoped && goodput_[uses] * kRounding * kRounding >= hoped;
      found.goodput += goodput_[uses];
      if (goodput_[uses] > 0) found.clusters.push_back(draft);
      set ^= uses;
      if (clusters > 0) --c;
    }
    const bool whole = clusters == 0 || found.clusters.size() == clusters;
    if (whole && found.goodput > best.goodput) {
      best.clusters = std::move(found.clusters);
      best.goodput = found.goodput;
    }
    if (best.goodput * kRounding * kRounding >= bound) return best;
    if (!as_hoped && !loop_) Refine();
  }
  return best;
}

}  // namespace stagecoach
