#include "coordinator/domain/planning/cost_model.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/schedule_rules.h"

namespace stagecoach {
namespace {

constexpr uint32_t kMostLag = 4;       // tau in steps that a plan may choose
constexpr uint32_t kMostWindow = 256;  // as pipeline_prediction: bounds stash and mailboxes
constexpr double kNotALimit = 0;       // of rates and memory in fleet_facts.h

double SecondsPerByte(double bytes_per_second) { return bytes_per_second > kNotALimit ? 1 / bytes_per_second : 0; }

std::string Rate(double bytes_per_second) {
  return bytes_per_second > kNotALimit ? absl::StrFormat(" (%.4g Mbit/s)", bytes_per_second * 8 / 1e6) : "";
}

// Names the largest of several times.
class Largest {
 public:
  void Offer(double seconds, const std::string& what) {
    if (seconds <= seconds_ * (1 + 1e-9)) return;
    seconds_ = seconds;
    what_ = what;
  }
  double seconds() const { return seconds_; }
  const std::string& what() const { return what_; }

 private:
  double seconds_ = 0;
  std::string what_ = "handling of frames";
};

}  // namespace

StageMemoryRule MemoryRuleOf(const PlanModel& model, uint32_t window) {
  StageMemoryRule rule = model.memory;
  rule.window = std::max(rule.window, window);
  rule.frame_bytes = static_cast<uint64_t>(model.frame_bytes);
  if (!model.synchronous) rule.lag = std::max(rule.lag, (rule.window + model.microbatches - 1) / model.microbatches);
  return rule;
}

uint32_t LargestWindow(const PlanModel& model) {
  return std::min<uint64_t>(kMostWindow, uint64_t{model.microbatches} * (model.synchronous ? 1 : kMostLag));
}

CostModel::CostModel(const PlanModel& model, const Fleet& fleet, std::shared_ptr<const LinkCosts> links,
                     const PlanAssumptions& assumptions)
    : model_(model), fleet_(fleet), links_(std::move(links)), assumptions_(assumptions) {
  const auto num_units = static_cast<uint32_t>(model.units.size());
  const double m = model.microbatches;
  const double averaging_share =
      2 * (assumptions.clusters - 1) / assumptions.clusters * model.averaging_bytes / (model.steps_per_round * m);
  const StageMemoryRule rule = MemoryRuleOf(model, assumptions.window);
  for (uint32_t u = 0; u < num_units; ++u) {
    if (u == 0 || model.cut_allowed[u]) points_.push_back(u);
  }
  points_.push_back(num_units);
  averaging_.push_back(0);
  std::vector<uint64_t> bytes = {0};
  std::vector<uint64_t> largest_activation;  // of the units between two points
  for (size_t p = 0; p + 1 < points_.size(); ++p) {
    uint64_t parameters = 0, stage_bytes = 0, largest = 0;
    for (uint32_t u = points_[p]; u < points_[p + 1]; ++u) {
      const PlanUnit& unit = model.units[u];
      StageMemoryRule own = rule;
      own.optimizer_bytes = unit.optimizer_bytes;
      parameters += unit.parameters;
      stage_bytes += UnitBytes(own, unit.parameters, unit.activation_bytes);
      largest = std::max(largest, unit.activation_bytes);
    }
    averaging_.push_back(averaging_.back() + averaging_share * static_cast<double>(parameters));
    bytes.push_back(bytes.back() + stage_bytes);
    largest_activation.push_back(largest);
  }
  const size_t num_points = points_.size();
  memory_.assign(num_points * num_points, 0);
  for (size_t a = 0; a + 1 < num_points; ++a) {
    uint64_t largest = 0;
    for (size_t b = a + 1; b < num_points; ++b) {
      largest = std::max(largest, largest_activation[b - 1]);
      memory_[a * num_points + b] = bytes[b] - bytes[a] + FixedBytes(rule, largest);
    }
  }
  compute_.reserve(fleet.workers.size() * num_points);
  loop_.reserve(fleet.workers.size() * num_points);
  update_.reserve(fleet.workers.size() * num_points);
  for (const FleetWorker& worker : fleet.workers) {
    const uint64_t memory = worker.memory_bytes > 0 ? worker.memory_bytes : std::numeric_limits<uint64_t>::max();
    workers_.push_back(
        {memory, std::max(SecondsPerByte(worker.up_bytes_per_second), SecondsPerByte(worker.down_bytes_per_second))});
    double loop = 0, update = 0;
    for (size_t p = 0; p < num_points; ++p) {
      loop_.push_back(loop);
      update_.push_back(update);
      compute_.push_back(loop + (model.synchronous ? 0 : update / m));
      if (p + 1 == num_points) break;
      for (uint32_t u = points_[p]; u < points_[p + 1]; ++u) {
        const KindSeconds& seconds = worker.kinds[model.units[u].kind];
        loop += seconds.forward + seconds.backward;
        update += seconds.update;
      }
    }
  }
}

double CostModel::Goodput(double bottleneck, double loop, double update, double failures_per_hour) const {
  const double cycle = CycleSeconds(bottleneck, loop);
  const double reliability = Reliability(failures_per_hour);
  if (!model_.synchronous) return reliability / cycle;
  const double m = model_.microbatches;
  // No loop is shorter than one cycle: averaging may make a cycle long that costs no latency.
  return reliability * m / ((m - 1) * cycle + std::max(loop, cycle) + update);
}

double CostModel::LoopOf(const ClusterDraft& draft) const {
  double loop = 0;
  for (size_t i = 0; i < draft.workers.size(); ++i) {
    if (i > 0) loop += Edge(draft.workers[i - 1], draft.workers[i]).hop_seconds;
    loop += LoopSeconds(draft.workers[i], draft.points[i], draft.points[i + 1]);
  }
  return loop;
}

double CostModel::GoodputOf(const ClusterDraft& draft) const {
  double bottleneck = 0, update = 0, failures = 0;
  for (size_t i = 0; i < draft.workers.size(); ++i) {
    const uint32_t w = draft.workers[i], a = draft.points[i], b = draft.points[i + 1];
    if (i > 0) bottleneck = std::max(bottleneck, Edge(draft.workers[i - 1], w).link_seconds);
    bottleneck = std::max(bottleneck, StageSeconds(w, a, b));
    update = std::max(update, UpdateSeconds(w, a, b));
    failures += fleet_.workers[w].failures_per_hour;
  }
  return std::isinf(bottleneck) ? 0 : Goodput(bottleneck, LoopOf(draft), update, failures);
}

PlannedCluster CostModel::Evaluate(const ClusterDraft& draft) const {
  PlannedCluster cluster;
  Largest largest;
  double update = 0, failures = 0;
  const size_t num_stages = draft.workers.size();
  for (size_t i = 0; i < num_stages; ++i) {
    const uint32_t w = draft.workers[i], a = draft.points[i], b = draft.points[i + 1];
    const FleetWorker& worker = fleet_.workers[w];
    PlannedStage stage;
    stage.worker = w;
    stage.first_unit = points_[a];
    stage.end_unit = points_[b];
    stage.compute_seconds = compute_[Row(w) + b] - compute_[Row(w) + a];
    stage.up_seconds = StageWireBytes(a, b) * SecondsPerByte(worker.up_bytes_per_second);
    stage.down_seconds = StageWireBytes(a, b) * SecondsPerByte(worker.down_bytes_per_second);
    stage.memory_bytes = MemoryBytes(a, b);
    largest.Offer(stage.compute_seconds, absl::StrCat("compute of ", worker.name));
    largest.Offer(stage.up_seconds, absl::StrCat("uplink of ", worker.name, Rate(worker.up_bytes_per_second)));
    largest.Offer(stage.down_seconds, absl::StrCat("downlink of ", worker.name, Rate(worker.down_bytes_per_second)));
    cluster.loop_seconds += LoopSeconds(w, a, b);
    update = std::max(update, UpdateSeconds(w, a, b));
    failures += worker.failures_per_hour;
    if (i + 1 < num_stages) {
      const EdgeCost edge = Edge(w, draft.workers[i + 1]);
      cluster.loop_seconds += edge.hop_seconds;
      largest.Offer(edge.link_seconds,
                    absl::StrCat("link ", worker.name, " -> ", fleet_.workers[draft.workers[i + 1]].name));
    }
    cluster.stages.push_back(stage);
  }
  const double bottleneck = std::max(largest.seconds(), kLeastCycleSeconds);
  cluster.microbatch_seconds = CycleSeconds(bottleneck, cluster.loop_seconds);
  if (cluster.microbatch_seconds > bottleneck * (1 + 1e-9)) {
    largest.Offer(cluster.microbatch_seconds, absl::StrCat("loop latency (", assumptions_.window, " in flight)"));
  }
  cluster.bottleneck = largest.what();
  cluster.window = std::min(assumptions_.window, WindowOf(cluster.loop_seconds, cluster.microbatch_seconds, 0,
                                                          static_cast<uint32_t>(num_stages)));
  cluster.goodput = Goodput(bottleneck, cluster.loop_seconds, update, failures);
  if (!model_.synchronous) {
    cluster.j = ChooseJ(model_.microbatches, cluster.window, cluster.microbatch_seconds, cluster.loop_seconds, update);
  }
  return cluster;
}

FleetPlan EvaluatePlan(const CostModel& costs, const std::vector<ClusterDraft>& clusters) {
  PlanAssumptions assumptions = costs.assumptions();
  assumptions.clusters = std::max(1.0, static_cast<double>(clusters.size()));
  const CostModel own(costs.model(), costs.fleet(), costs.shared_links(), assumptions);
  FleetPlan plan;
  std::vector<bool> used(costs.num_workers(), false);
  uint32_t j = 0;
  for (const ClusterDraft& draft : clusters) {
    plan.clusters.push_back(own.Evaluate(draft));
    j = std::max(j, plan.clusters.back().j);
    for (const uint32_t worker : draft.workers) used[worker] = true;
  }
  std::sort(plan.clusters.begin(), plan.clusters.end(),
            [](const PlannedCluster& a, const PlannedCluster& b) { return a.stages[0].worker < b.stages[0].worker; });
  for (PlannedCluster& cluster : plan.clusters) {
    cluster.j = j;
    cluster.phi = static_cast<double>(j) / costs.model().microbatches;
    plan.goodput += cluster.goodput;
  }
  for (uint32_t worker = 0; worker < used.size(); ++worker) {
    if (!used[worker]) plan.unused.push_back(worker);
  }
  return plan;
}

absl::StatusOr<FleetPlan> ReevaluatePlan(const PlanModel& model, const Fleet& fleet, const FleetPlan& plan,
                                         double stall_seconds) {
  const auto links = std::make_shared<const LinkCosts>(fleet, model.frame_bytes);
  uint32_t window = 1;
  for (const PlannedCluster& cluster : plan.clusters) window = std::max(window, cluster.window);
  const CostModel costs(model, fleet, links, {window, 1, stall_seconds});
  std::vector<ClusterDraft> drafts;
  std::vector<bool> used(fleet.workers.size(), false);
  for (const PlannedCluster& cluster : plan.clusters) {
    ClusterDraft draft;
    draft.points.push_back(0);
    for (const PlannedStage& stage : cluster.stages) {
      uint32_t point = draft.points.back();
      const bool follows = costs.UnitAt(point) == stage.first_unit;
      while (point < costs.last_point() && costs.UnitAt(point) < stage.end_unit) ++point;
      if (!follows || stage.end_unit <= stage.first_unit || costs.UnitAt(point) != stage.end_unit) {
        return absl::InvalidArgumentError(absl::StrCat("units ", stage.first_unit, "..", stage.end_unit,
                                                       " of a stage: this model has no such cut here"));
      }
      if (stage.worker >= fleet.workers.size() || used[stage.worker]) {
        return absl::InvalidArgumentError(
            absl::StrCat("worker ", stage.worker, " of the plan is not in the fleet, or has two stages"));
      }
      used[stage.worker] = true;
      const std::string& name = fleet.workers[stage.worker].name;
      if (!costs.Fits(stage.worker, draft.points.back(), point)) {
        return absl::ResourceExhaustedError(
            absl::StrCat("units ", stage.first_unit, "..", stage.end_unit - 1, " do not fit ", name));
      }
      if (!draft.workers.empty() && std::isinf(costs.Edge(draft.workers.back(), stage.worker).link_seconds)) {
        return absl::FailedPreconditionError(
            absl::StrCat(fleet.workers[draft.workers.back()].name, " and ", name, " do not reach each other"));
      }
      draft.workers.push_back(stage.worker);
      draft.points.push_back(point);
    }
    if (draft.points.back() != costs.last_point()) {
      return absl::InvalidArgumentError("a cluster of the plan does not cover the model");
    }
    drafts.push_back(std::move(draft));
  }
  return EvaluatePlan(costs, drafts);
}

}  // namespace stagecoach
