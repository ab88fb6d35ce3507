#include "coordinator/domain/pipeline_prediction.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/schedule_rules.h"

namespace stagecoach {
namespace {

// Least cycle time that is believed: handling of frames costs about this much even if nothing is computed.
constexpr double kLeastCycleSeconds = 2e-4;
// Microbatches in flight at most: bounds stash and mailboxes on links that are far longer than a microbatch.
constexpr uint32_t kMaxWindow = 256;

struct HostLoad {
  double work_seconds = 0, update_seconds = 0;
  uint32_t cores = 1, threads = 0;
};

double SendSeconds(double bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? bytes / bytes_per_second : 0;
}

void Raise(double seconds, const std::string& what, PipelineSpeed* speed) {
  if (seconds <= speed->microbatch_seconds * (1 + 1e-9)) return;
  speed->microbatch_seconds = seconds;
  speed->bottleneck = absl::StrCat(what, absl::StrFormat(" (%.2f ms a microbatch)", seconds * 1e3));
}

}  // namespace

PipelineSpeed PredictSpeed(const PipelineCosts& costs) {
  PipelineSpeed speed;
  speed.microbatch_seconds = kLeastCycleSeconds;
  speed.bottleneck = "handling of frames";
  std::map<std::string, HostLoad> hosts;
  for (const StageCost& stage : costs.stages) {
    const double work = stage.forward_seconds + stage.backward_seconds;
    Raise(work, absl::StrCat("compute of ", stage.worker), &speed);
    speed.update_seconds = std::max(speed.update_seconds, stage.update_seconds);
    HostLoad& host = hosts[stage.host];
    host.work_seconds += work * costs.threads;
    host.update_seconds += stage.update_seconds * costs.threads;
    host.cores = std::max(1u, stage.cores);
    host.threads += costs.threads;
  }
  for (const StageCost& stage : costs.neighbours) {
    const auto host = hosts.find(stage.host);
    if (host == hosts.end()) continue;
    host->second.work_seconds += (stage.forward_seconds + stage.backward_seconds) * costs.threads;
    host->second.update_seconds += stage.update_seconds * costs.threads;
    host->second.threads += costs.threads;
  }
  const double slowest_worker = speed.microbatch_seconds;
  for (const auto& [name, host] : hosts) {
    Raise(host.work_seconds / host.cores,
          absl::StrCat("the ", host.cores, " cores of host ", name, " shared by ", host.threads, " threads"), &speed);
    speed.update_seconds = std::max(speed.update_seconds, host.update_seconds / host.cores);
  }
  speed.host_bound = speed.microbatch_seconds > slowest_worker;
  for (size_t i = 0; i < costs.links.size(); ++i) {
    const LinkCost& link = costs.links[i];
    const std::string &upper = costs.stages[i].worker, &lower = costs.stages[i + 1].worker;
    Raise(SendSeconds(costs.frame_bytes, link.forward_bytes_per_second), absl::StrCat("link ", upper, " -> ", lower),
          &speed);
    Raise(SendSeconds(costs.frame_bytes, link.backward_bytes_per_second), absl::StrCat("link ", lower, " -> ", upper),
          &speed);
  }
  const size_t num_stages = costs.stages.size();
  speed.loop_from_stage.assign(num_stages, 0);
  speed.stage_seconds.assign(num_stages, 0);
  for (size_t i = num_stages; i-- > 0;) {
    const StageCost& stage = costs.stages[i];
    const HostLoad& host = hosts[stage.host];
    const double crowding = std::max(1.0, static_cast<double>(host.threads) / host.cores);
    double below = 0;
    if (i + 1 < num_stages) {
      const LinkCost& link = costs.links[i];
      below = speed.loop_from_stage[i + 1] + link.rtt_seconds +
              SendSeconds(costs.frame_bytes, link.forward_bytes_per_second) +
              SendSeconds(costs.frame_bytes, link.backward_bytes_per_second);
    }
    // No operation takes longer than a cycle in the steady state, however crowded the host is.
    const double work = stage.forward_seconds + stage.backward_seconds;
    speed.stage_seconds[i] = std::max(work, std::min(work * crowding, speed.microbatch_seconds));
    speed.loop_from_stage[i] = below + speed.stage_seconds[i];
  }
  speed.loop_seconds = speed.loop_from_stage.empty() ? 0 : speed.loop_from_stage[0];
  for (size_t i = 0; i < num_stages; ++i) {
    speed.windows.push_back(std::clamp(WindowOf(speed.loop_from_stage[i], speed.microbatch_seconds,
                                                static_cast<uint32_t>(i), static_cast<uint32_t>(num_stages)),
                                       1u, kMaxWindow));
  }
  return speed;
}

PipelineSpeed PredictComputeBound(const PipelineCosts& costs) {
  PipelineCosts without = costs;
  for (LinkCost& link : without.links) link = LinkCost();
  return PredictSpeed(without);
}

}  // namespace stagecoach
