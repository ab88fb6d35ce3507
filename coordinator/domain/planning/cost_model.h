// What a stage, an edge and a cluster cost (docs/planning.md, "Cost model"); every solver, bound and baseline uses
// these functions, so that their figures can be compared.
//
//   comp_i = sum (f + b) + update / M           (J = 0: without the update)
//   avg_i  = 2 (C-1)/C S_i w / (H M)            bytes; C clusters, S_i parameters
//   up_i   = (F_a + F_b + avg_i) / uplink_i     F is 0 at the ends of the pipeline; down_i likewise
//   T      = max(comp, up, down, link, L / N_max)
//   L      = sum (f + b) + sum of hops
//   N      = ceil(L / T) + ceil(P / 2), at most N_max
//   g      = G / T                              J > 0
//   g      = G M / ((M-1) T + L + update)       J = 0
//   G      = 1 - E[stall] sum of failure rates
//
// Cuts are numbered by cut *points*: point 0 is in front of unit 0, the last one behind the head, between them the cuts
// that the model allows.
//
// Threading: immutable. Ownership: model and fleet must outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/domain/planning/fleet_facts.h"
#include "coordinator/domain/planning/fleet_plan.h"
#include "coordinator/domain/planning/link_costs.h"

namespace stagecoach {

// Assumed before a plan is known.
struct PlanAssumptions {
  uint32_t window = 1;       // N_max: what memory is reckoned with, and the most microbatches in flight
  double clusters = 1;       // C of averaging; fractions are allowed (bounds)
  double stall_seconds = 0;  // E[stall] of a failure
};

// Members in pipeline order; stage i holds [points[i], points[i+1]).
struct ClusterDraft {
  std::vector<uint32_t> workers;
  std::vector<uint32_t> points;
};

class CostModel {
 public:
  CostModel(const PlanModel& model, const Fleet& fleet, std::shared_ptr<const LinkCosts> links,
            const PlanAssumptions& assumptions);

  const PlanModel& model() const { return model_; }
  const Fleet& fleet() const { return fleet_; }
  const LinkCosts& links() const { return *links_; }
  std::shared_ptr<const LinkCosts> shared_links() const { return links_; }
  const PlanAssumptions& assumptions() const { return assumptions_; }

  uint32_t num_workers() const { return static_cast<uint32_t>(workers_.size()); }
  uint32_t last_point() const { return static_cast<uint32_t>(points_.size() - 1); }
  uint32_t UnitAt(uint32_t point) const { return points_[point]; }

  // 0 <= a < b <= last_point().
  uint64_t MemoryBytes(uint32_t a, uint32_t b) const { return memory_[size_t{a} * points_.size() + b]; }
  bool Fits(uint32_t worker, uint32_t a, uint32_t b) const { return MemoryBytes(a, b) <= workers_[worker].memory; }
  // max(comp, up, down) without looking at memory; infinite where memory forbids it.
  double StageSecondsUnchecked(uint32_t worker, uint32_t a, uint32_t b) const {
    const Worker& w = workers_[worker];
    const double bytes = StageWireBytes(a, b);
    return std::max(
        {compute_[Row(worker) + b] - compute_[Row(worker) + a], bytes * w.seconds_per_byte, kLeastCycleSeconds});
  }
  double StageSeconds(uint32_t worker, uint32_t a, uint32_t b) const {
    return Fits(worker, a, b) ? StageSecondsUnchecked(worker, a, b) : std::numeric_limits<double>::infinity();
  }
  double LoopSeconds(uint32_t worker, uint32_t a, uint32_t b) const {
    return loop_[Row(worker) + b] - loop_[Row(worker) + a];
  }
  EdgeCost Edge(uint32_t i, uint32_t j) const { return links_->Between(i, j); }

  // G of a cluster whose members fail so often in all.
  double Reliability(double failures_per_hour) const {
    return std::max(0.0, 1 - assumptions_.stall_seconds * failures_per_hour / 3600);
  }
  // T with the windows, and g; bottleneck = max of stages and links.
  double CycleSeconds(double bottleneck, double loop) const { return std::max(bottleneck, loop / assumptions_.window); }
  double Goodput(double bottleneck, double loop, double update, double failures_per_hour) const;

  double LoopOf(const ClusterDraft& draft) const;
  double GoodputOf(const ClusterDraft& draft) const;  // 0: does not fit, or neighbours do not reach each other
  // Every number of a cluster. `draft` is well-formed; memory and reachability are not checked (T may be infinite).
  PlannedCluster Evaluate(const ClusterDraft& draft) const;

 private:
  // Handling of frames costs about this much a microbatch even if nothing is computed (as in pipeline_prediction).
  static constexpr double kLeastCycleSeconds = 2e-4;
  struct Worker {
    uint64_t memory = 0;          // largest number if not limited
    double seconds_per_byte = 0;  // of the slower of uplink and downlink
  };
  double UpdateSeconds(uint32_t worker, uint32_t a, uint32_t b) const {
    return update_[Row(worker) + b] - update_[Row(worker) + a];
  }
  size_t Row(uint32_t worker) const { return size_t{worker} * points_.size(); }
  double StageWireBytes(uint32_t a, uint32_t b) const {
    const int frames = (a > 0) + (b < last_point());
    return frames * model_.frame_bytes + averaging_[b] - averaging_[a];
  }

  const PlanModel& model_;
  const Fleet& fleet_;
  std::shared_ptr<const LinkCosts> links_;
  PlanAssumptions assumptions_;
  std::vector<uint32_t> points_;  // units
  std::vector<Worker> workers_;
  std::vector<double> compute_;    // of units in front of the point, a row for each worker: comp
  std::vector<double> loop_;       // the same, f + b
  std::vector<double> update_;     // the same, updates
  std::vector<double> averaging_;  // bytes of the units in front of the point
  std::vector<uint64_t> memory_;   // (a, b): bytes of a stage
};

// The rule of memory with N_max = window: at least what the model asks for.
StageMemoryRule MemoryRuleOf(const PlanModel& model, uint32_t window);
// Largest N_max that the staleness rule allows: M if J = 0, else tau <= 4.
uint32_t LargestWindow(const PlanModel& model);

// A plan of these clusters with every figure of it, C = their number; no bound and no explanation.
FleetPlan EvaluatePlan(const CostModel& costs, const std::vector<ClusterDraft>& clusters);

// A plan that exists, under the facts of now. INVALID_ARGUMENT if it does not belong to this model and fleet,
// RESOURCE_EXHAUSTED if a stage does not fit, FAILED_PRECONDITION if neighbours do not reach each other.
absl::StatusOr<FleetPlan> ReevaluatePlan(const PlanModel& model, const Fleet& fleet, const FleetPlan& plan,
                                         double stall_seconds);

}  // namespace stagecoach
