// Chains over every subset of a few workers, by dynamic programming:
//
//   f[S][q][k] = least value of covering the first k cut points with exactly the workers S, in any order, q last
//   f[S][q][k'] = min over p in S \ q, k < k' of  f[S \ q][p][k] + edge(p, q) + stage(q, k, k')
//
// where + is the maximum (bottleneck) or the sum (loop latency). 2^n n (n L + L^2 / 2) steps, 2 * 2^n n L bytes.
// Values are floats: 2^-24 of a plan's time is below anything that can be measured.
//
// Threading: immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

// Members of a fleet and the cut points that are tried.
struct SubsetScope {
  std::vector<uint32_t> workers;  // bit i of a set is workers[i]; at most 20
  std::vector<uint32_t> points;   // ascending, from 0 to last_point()
};
// Every cut point, or evenly spaced ones of them where there are more than the solver's cost allows.
std::vector<uint32_t> PointsTried(const CostModel& costs);

class SubsetTable {
 public:
  enum class Value {
    kBottleneck,  // the slowest stage or link
    kLoop,        // loop latency
  };
  // Stages and links above `cap` seconds are not used.
  SubsetTable(const CostModel& costs, const SubsetScope& scope, Value value, double cap);

  // Of a chain of exactly these workers; infinite if there is none.
  float Of(uint32_t set) const;
  std::optional<ClusterDraft> Draft(uint32_t set) const;

 private:
  float Join(float x, float y) const { return sum_ ? x + y : (x > y ? x : y); }
  const float* Row(uint32_t set, uint32_t last) const;
  const float* StageRow(uint32_t worker, uint32_t begin) const {
    return &stages_[(size_t{worker} * num_points_ + begin) * stride_];
  }
  void Above(uint32_t set, uint32_t last, float* above) const;
  template <bool kSum, uint32_t kBlocks>
  void Fill();
  template <bool kSum, uint32_t kBlocks>
  void FillWith(uint32_t blocks);

  const SubsetScope scope_;
  const bool sum_;
  const uint32_t num_workers_, num_points_;
  const uint32_t stride_;        // of rows: num_points_ rounded up to whole registers; the rest is infinite
  std::vector<float> stages_;    // worker, begin, end
  std::vector<float> edges_;     // from, to
  std::vector<uint32_t> first_;  // row of a set's lowest worker
  std::vector<float> rows_;      // set and last worker: by end point
};

}  // namespace stagecoach
