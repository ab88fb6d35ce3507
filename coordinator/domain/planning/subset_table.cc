#include "coordinator/domain/planning/subset_table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace stagecoach {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();
// The solver's cost grows with the square; 41 take the units of a model of 39 blocks one by one.
constexpr uint32_t kMostPoints = 42;

}  // namespace

std::vector<uint32_t> PointsTried(const CostModel& costs) {
  const uint32_t last = costs.last_point(), num = std::min(last + 1, kMostPoints);
  std::vector<uint32_t> points;
  for (uint32_t i = 0; i < num; ++i) points.push_back(static_cast<uint32_t>(uint64_t{i} * last / (num - 1)));
  return points;
}

SubsetTable::SubsetTable(const CostModel& costs, const SubsetScope& scope, Value value, double cap)
    : scope_(scope),
      sum_(value == Value::kLoop),
      num_workers_(static_cast<uint32_t>(scope.workers.size())),
      num_points_(static_cast<uint32_t>(scope.points.size())) {
  stages_.assign(size_t{num_workers_} * num_points_ * num_points_, kNone);
  edges_.assign(size_t{num_workers_} * num_workers_, kNone);
  for (uint32_t q = 0; q < num_workers_; ++q) {
    const uint32_t worker = scope.workers[q];
    for (uint32_t a = 0; a < num_points_; ++a) {
      for (uint32_t b = a + 1; b < num_points_; ++b) {
        const uint32_t begin = scope.points[a], end = scope.points[b];
        const double seconds = costs.StageSeconds(worker, begin, end);
        if (seconds > cap || seconds == std::numeric_limits<double>::infinity()) continue;
        stages_[(size_t{q} * num_points_ + a) * num_points_ + b] =
            static_cast<float>(sum_ ? costs.LoopSeconds(worker, begin, end) : seconds);
      }
    }
    for (uint32_t p = 0; p < num_workers_; ++p) {
      if (p == q) continue;
      const EdgeCost edge = costs.Edge(scope.workers[p], worker);
      if (edge.link_seconds > cap || edge.link_seconds == std::numeric_limits<double>::infinity()) continue;
      edges_[size_t{p} * num_workers_ + q] = static_cast<float>(sum_ ? edge.hop_seconds : edge.link_seconds);
    }
  }
  const uint32_t num_sets = 1u << num_workers_;
  first_.assign(num_sets, 0);
  uint32_t rows = 0;
  for (uint32_t set = 0; set < num_sets; ++set) {
    first_[set] = rows;
    rows += static_cast<uint32_t>(std::popcount(set));
  }
  rows_.assign(size_t{rows} * num_points_, kNone);
  if (sum_) {
    Fill<true>();
  } else {
    Fill<false>();
  }
}

const float* SubsetTable::Row(uint32_t set, uint32_t last) const {
  const auto rank = static_cast<uint32_t>(std::popcount(set & ((1u << last) - 1)));
  return &rows_[size_t{first_[set] + rank} * num_points_];
}

// above[k]: the least value with which `last` may begin its stage at point k, after the other workers of the set.
void SubsetTable::Above(uint32_t set, uint32_t last, float* above) const {
  std::fill(above, above + num_points_, kNone);
  const uint32_t others = set & ~(1u << last);
  if (others == 0) above[0] = 0;
  for (uint32_t rest = others; rest != 0; rest &= rest - 1) {
    const auto p = static_cast<uint32_t>(std::countr_zero(rest));
    const float edge = edges_[size_t{p} * num_workers_ + last];
    if (edge == kNone) continue;
    const float* row = Row(others, p);
    if (sum_) {
      for (uint32_t k = 0; k < num_points_; ++k) {
        const float joined = row[k] + edge;
        above[k] = joined < above[k] ? joined : above[k];
      }
    } else {
      for (uint32_t k = 0; k < num_points_; ++k) {
        const float joined = row[k] > edge ? row[k] : edge;
        above[k] = joined < above[k] ? joined : above[k];
      }
    }
  }
}

template <bool kSum>
void SubsetTable::Fill() {
  std::vector<float> above(num_points_);
  for (uint32_t set = 1; set < 1u << num_workers_; ++set) {
    if (static_cast<uint32_t>(std::popcount(set)) >= num_points_) continue;  // a stage has a unit at least
    for (uint32_t rest = set; rest != 0; rest &= rest - 1) {
      const auto q = static_cast<uint32_t>(std::countr_zero(rest));
      Above(set, q, above.data());
      float* row = MutableRow(set, q);
      for (uint32_t k = 0; k + 1 < num_points_; ++k) {
        const float reached = above[k];
        if (reached == kNone) continue;
        const float* stage = StageRow(q, k);
        for (uint32_t end = k + 1; end < num_points_; ++end) {
          const float joined = kSum ? reached + stage[end] : (reached > stage[end] ? reached : stage[end]);
          row[end] = joined < row[end] ? joined : row[end];
        }
      }
    }
  }
}

float SubsetTable::Of(uint32_t set) const {
  float least = kNone;
  for (uint32_t rest = set; rest != 0; rest &= rest - 1) {
    least = std::min(least, Row(set, static_cast<uint32_t>(std::countr_zero(rest)))[num_points_ - 1]);
  }
  return least;
}

std::optional<ClusterDraft> SubsetTable::Draft(uint32_t set) const {
  const float value = Of(set);
  if (value == kNone) return std::nullopt;
  uint32_t last = 0, end = num_points_ - 1;
  while ((set >> last & 1) == 0 || Row(set, last)[end] != value) ++last;
  ClusterDraft draft;
  draft.points.push_back(scope_.points[end]);
  std::vector<float> above(num_points_);
  while (true) {
    Above(set, last, above.data());
    uint32_t begin = 0;
    while (Join(above[begin], StageRow(last, begin)[end]) != Row(set, last)[end]) ++begin;
    draft.workers.push_back(scope_.workers[last]);
    draft.points.push_back(scope_.points[begin]);
    const uint32_t others = set & ~(1u << last);
    if (others == 0) break;
    uint32_t p = 0;
    while ((others >> p & 1) == 0 ||
           Join(Row(others, p)[begin], edges_[size_t{p} * num_workers_ + last]) != above[begin]) {
      ++p;
    }
    set = others;
    last = p;
    end = begin;
  }
  std::reverse(draft.workers.begin(), draft.workers.end());
  std::reverse(draft.points.begin(), draft.points.end());
  return draft;
}

}  // namespace stagecoach
