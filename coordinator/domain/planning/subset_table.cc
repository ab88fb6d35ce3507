#include "coordinator/domain/planning/subset_table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace stagecoach {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();
// The solver's cost grows with the square; 41 take the units of a model of 39 blocks one by one.
constexpr uint32_t kMostPoints = 42;

// Four floats, a register of every machine: a whole row of the table then stays in registers while it is filled.
using Block = float __attribute__((vector_size(16)));
constexpr uint32_t kBlock = sizeof(Block) / sizeof(float);
constexpr uint32_t kMostBlocks = (kMostPoints + kBlock - 1) / kBlock;

constexpr Block kNoneBlock = {kNone, kNone, kNone, kNone};

Block Load(const float* from) {
  Block block;
  __builtin_memcpy(&block, from, sizeof block);
  return block;
}

Block Least(Block x, Block y) { return x < y ? x : y; }

template <bool kSum>
Block Joined(Block x, Block y) {
  if constexpr (kSum) return x + y;
  return x > y ? x : y;
}

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
      num_points_(static_cast<uint32_t>(scope.points.size())),
      stride_((num_points_ + kBlock - 1) / kBlock * kBlock) {
  stages_.assign(size_t{num_workers_} * num_points_ * stride_, kNone);
  edges_.assign(size_t{num_workers_} * num_workers_, kNone);
  for (uint32_t q = 0; q < num_workers_; ++q) {
    const uint32_t worker = scope.workers[q];
    for (uint32_t a = 0; a < num_points_; ++a) {
      for (uint32_t b = a + 1; b < num_points_; ++b) {
        const uint32_t begin = scope.points[a], end = scope.points[b];
        if (!costs.Fits(worker, begin, end)) break;  // nor do longer ones
        const double seconds = costs.StageSecondsUnchecked(worker, begin, end);
        if (seconds > cap || seconds == std::numeric_limits<double>::infinity()) continue;
        stages_[(size_t{q} * num_points_ + a) * stride_ + b] =
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
  rows_.assign(size_t{rows} * stride_, kNone);
  if (sum_) {
    FillWith<true, kMostBlocks>(stride_ / kBlock);
  } else {
    FillWith<false, kMostBlocks>(stride_ / kBlock);
  }
}

const float* SubsetTable::Row(uint32_t set, uint32_t last) const {
  const auto rank = static_cast<uint32_t>(std::popcount(set & ((1u << last) - 1)));
  return &rows_[size_t{first_[set] + rank} * stride_];
}

// above[k]: the least value with which `last` may begin its stage at point k, after the other workers of the set.
void SubsetTable::Above(uint32_t set, uint32_t last, float* above) const {
  std::fill(above, above + num_points_, kNone);
  const uint32_t others = set & ~(1u << last);
  if (others == 0) above[0] = 0;
  for (uint32_t rest = others; rest != 0; rest &= rest - 1) {
    const auto p = static_cast<uint32_t>(std::countr_zero(rest));
    const float* row = Row(others, p);
    for (uint32_t k = 0; k < num_points_; ++k) {
      above[k] = std::min(above[k], Join(row[k], edges_[size_t{p} * num_workers_ + last]));
    }
  }
}

// The same for every set and last worker, and from there every end of its stage.
template <bool kSum, uint32_t kBlocks>
void SubsetTable::Fill() {
  for (uint32_t set = 1; set < 1u << num_workers_; ++set) {
    if (static_cast<uint32_t>(std::popcount(set)) >= num_points_) continue;  // a stage has a unit at least
    float* row = &rows_[size_t{first_[set]} * stride_];
    for (uint32_t rest = set; rest != 0; rest &= rest - 1, row += stride_) {
      const auto q = static_cast<uint32_t>(std::countr_zero(rest));
      const uint32_t others = set & ~(1u << q);
      Block above[kBlocks], least[kBlocks];
      for (uint32_t b = 0; b < kBlocks; ++b) above[b] = least[b] = kNoneBlock;
      if (others == 0) above[0][0] = 0;
      const float* from = &rows_[size_t{first_[others]} * stride_];
      for (uint32_t more = others; more != 0; more &= more - 1, from += stride_) {
        const float edge = edges_[size_t{static_cast<uint32_t>(std::countr_zero(more))} * num_workers_ + q];
        if (edge == kNone) continue;
        const Block edges = {edge, edge, edge, edge};
#pragma GCC unroll 16
        for (uint32_t b = 0; b < kBlocks; ++b) {
          above[b] = Least(Joined<kSum>(Load(from + size_t{b} * kBlock), edges), above[b]);
        }
      }
      const float* stage = StageRow(q, 0);
#pragma GCC unroll 16
      for (uint32_t b = 0; b < kBlocks; ++b) {
        const uint32_t end = std::min(num_points_, (b + 1) * kBlock);
        for (uint32_t k = b * kBlock; k < end; ++k, stage += stride_) {
          const float reached = above[b][k % kBlock];
          if (reached == kNone) continue;
          const Block reaches = {reached, reached, reached, reached};
#pragma GCC unroll 16
          for (uint32_t e = b; e < kBlocks; ++e) {
            least[e] = Least(Joined<kSum>(reaches, Load(stage + size_t{e} * kBlock)), least[e]);
          }
        }
      }
      __builtin_memcpy(row, least, sizeof least);
    }
  }
}

template <bool kSum, uint32_t kBlocks>
void SubsetTable::FillWith(uint32_t blocks) {
  if (blocks == kBlocks) return Fill<kSum, kBlocks>();
  if constexpr (kBlocks > 1) FillWith<kSum, kBlocks - 1>(blocks);
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
