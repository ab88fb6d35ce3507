#include "coordinator/domain/simulation/cluster_case.h"

#include <algorithm>

#include "common/schedule_rules.h"

namespace stagecoach {
namespace {

// A link that is full all the time with averaging still lets frames through: they have their own streams.
constexpr double kLeastShareOfFrames = 0.05;

double SecondsOf(double bytes, double bytes_per_second) { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }

double LeftForFrames(double bytes_per_second, double taken) {
  return bytes_per_second > 0 ? std::max(bytes_per_second - taken, kLeastShareOfFrames * bytes_per_second) : 0;
}

// The slowest of a sender's uplink, the link and the receiver's downlink; 0: none limits.
double PathRate(double up, double link, double down) {
  double rate = 0;
  for (const double limit : {up, link, down}) {
    if (limit > 0) rate = rate > 0 ? std::min(rate, limit) : limit;
  }
  return rate;
}

}  // namespace

FleetLink LinkBetween(const Fleet& fleet, uint32_t i, uint32_t j) {
  const auto own = fleet.links.find({i, j});
  if (own != fleet.links.end()) return own->second;
  const auto of_regions = fleet.regions.find({fleet.workers[i].region, fleet.workers[j].region});
  return of_regions == fleet.regions.end() ? FleetLink() : of_regions->second;
}

PipelineCase CaseOfCluster(const PlanModel& model, const Fleet& fleet, const PlannedCluster& cluster, size_t clusters) {
  PipelineCase pipeline;
  pipeline.frame_bytes = model.frame_bytes;
  pipeline.microbatches_per_step = model.microbatches;
  pipeline.j = model.synchronous ? 0 : cluster.j;
  const auto c = static_cast<double>(std::max<size_t>(1, clusters));
  for (size_t i = 0; i < cluster.stages.size(); ++i) {
    const PlannedStage& planned = cluster.stages[i];
    const FleetWorker& worker = fleet.workers[planned.worker];
    SimulatedStage stage;
    double parameters = 0;
    for (uint32_t unit = planned.first_unit; unit < planned.end_unit; ++unit) {
      const KindSeconds& seconds = worker.kinds[model.units[unit].kind];
      stage.forward_seconds += seconds.forward;
      stage.backward_seconds += seconds.backward;
      stage.update_seconds += seconds.update;
      parameters += static_cast<double>(model.units[unit].parameters);
    }
    // Bytes of averaging a second at the planned rate: avg_i / T.
    const double averaging = 2 * (c - 1) / c * parameters * model.averaging_bytes /
                             (model.steps_per_round * model.microbatches * cluster.microbatch_seconds);
    stage.up_bytes_per_second = LeftForFrames(worker.up_bytes_per_second, averaging);
    stage.down_bytes_per_second = LeftForFrames(worker.down_bytes_per_second, averaging);
    pipeline.stages.push_back(stage);
    if (i + 1 == cluster.stages.size()) break;
    const uint32_t next = cluster.stages[i + 1].worker;
    const FleetLink there = LinkBetween(fleet, planned.worker, next), back = LinkBetween(fleet, next, planned.worker);
    pipeline.links.push_back(
        {std::max(there.rtt_seconds, back.rtt_seconds) / 2, 0, there.bytes_per_second, back.bytes_per_second});
  }
  const auto num_stages = static_cast<uint32_t>(pipeline.stages.size());
  double loop = 0;
  for (uint32_t i = num_stages; i-- > 0;) {
    SimulatedStage& stage = pipeline.stages[i];
    loop += stage.forward_seconds + stage.backward_seconds;
    if (i + 1 < num_stages) {
      const SimulatedLink& link = pipeline.links[i];
      const SimulatedStage& below = pipeline.stages[i + 1];
      loop +=
          2 * link.delay_seconds +
          SecondsOf(model.frame_bytes,
                    PathRate(stage.up_bytes_per_second, link.forward_bytes_per_second, below.down_bytes_per_second)) +
          SecondsOf(model.frame_bytes,
                    PathRate(below.up_bytes_per_second, link.backward_bytes_per_second, stage.down_bytes_per_second));
    }
    stage.window =
        std::clamp(WindowOf(loop, cluster.microbatch_seconds, i, num_stages), 1u, std::max(1u, cluster.window));
  }
  return pipeline;
}

}  // namespace stagecoach
