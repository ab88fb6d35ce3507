#include "cli/planning/simulation_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostClustersShown = 16;  // a page; -o json lists everything

double Simulated(const std::vector<SimulatedCluster>& clusters) {
  double rate = 0;
  for (const SimulatedCluster& cluster : clusters) rate += cluster.outcome.microbatches_per_second;
  return rate;
}

Json StageJson(const PlanningInputs& inputs, const PlannedStage& planned, const SimulatedCluster& cluster, size_t i) {
  const StageUse& use = cluster.outcome.stages[i];
  Json json;
  json["worker"] = inputs.fleet.workers[planned.worker].name;
  json["window"] = cluster.pipeline.stages[i].window;
  json["most_in_flight"] = use.most_in_flight;
  json["compute"] = use.compute;
  json["up"] = use.up;
  json["down"] = use.down;
  for (size_t wait = 0; wait < kNumSimulatedWaits; ++wait) {
    json["waiting"][SimulatedWaitName(static_cast<SimulatedWait>(wait))] = use.waiting[wait];
  }
  return json;
}

void AppendCluster(const PlanningInputs& inputs, const PlannedCluster& planned, const SimulatedCluster& cluster,
                   size_t number, std::string* text) {
  const double tokens = inputs.model.plan.tokens_per_microbatch;
  const double rate = cluster.outcome.microbatches_per_second;
  absl::StrAppendFormat(text, "\ncluster %d: %.0f tokens/s simulated, %.0f predicted (%.3f); J %d; bottleneck: %s\n",
                        number, rate * tokens, planned.goodput * tokens, rate / planned.goodput, cluster.pipeline.j,
                        planned.bottleneck);
  absl::StrAppendFormat(text, "  %-5s %-18s %4s %8s %6s %6s   %s\n", "STAGE", "WORKER", "N", "COMPUTE", "UP", "DOWN",
                        "WAITING: INPUT GRADIENT CREDIT VERSION");
  for (size_t i = 0; i < planned.stages.size(); ++i) {
    const StageUse& use = cluster.outcome.stages[i];
    absl::StrAppendFormat(text, "  %-5d %-18s %4d %7.1f%% %5.1f%% %5.1f%%   %13.1f%% %7.1f%% %5.1f%% %6.1f%%\n", i,
                          inputs.fleet.workers[planned.stages[i].worker].name, cluster.pipeline.stages[i].window,
                          use.compute * 100, use.up * 100, use.down * 100, use.waiting[0] * 100, use.waiting[1] * 100,
                          use.waiting[2] * 100, use.waiting[3] * 100);
  }
}

}  // namespace

Json SimulationJson(const PlanningInputs& inputs, const FleetPlan& plan,
                    const std::vector<SimulatedCluster>& clusters) {
  const double tokens = inputs.model.plan.tokens_per_microbatch;
  Json json;
  json["fleet"] = inputs.fleet_name;
  json["run"] = inputs.spec.name().empty() ? "run" : inputs.spec.name();
  json["simulated_tokens_per_second"] = Simulated(clusters) * tokens;
  json["predicted_tokens_per_second"] = plan.goodput * tokens;
  json["microbatches_per_step"] = inputs.model.plan.microbatches;
  json["clusters"] = Json::array();
  for (size_t c = 0; c < clusters.size(); ++c) {
    Json& row = json["clusters"].emplace_back();
    row["simulated_tokens_per_second"] = clusters[c].outcome.microbatches_per_second * tokens;
    row["predicted_tokens_per_second"] = plan.clusters[c].goodput * tokens;
    row["measured_steps"] = clusters[c].pipeline.steps;
    row["measured_seconds"] = clusters[c].outcome.seconds;
    row["j"] = clusters[c].pipeline.j;
    row["stages"] = Json::array();
    for (size_t i = 0; i < plan.clusters[c].stages.size(); ++i) {
      row["stages"].push_back(StageJson(inputs, plan.clusters[c].stages[i], clusters[c], i));
    }
  }
  json["notes"] = inputs.notes;
  return json;
}

std::string SimulationText(const PlanningInputs& inputs, const FleetPlan& plan,
                           const std::vector<SimulatedCluster>& clusters) {
  const double tokens = inputs.model.plan.tokens_per_microbatch, rate = Simulated(clusters);
  std::string text = absl::StrFormat("%s on %s: %.0f tokens/s simulated, %.0f predicted (%.3f)\n",
                                     inputs.spec.name().empty() ? "run" : inputs.spec.name(), inputs.fleet_name,
                                     rate * tokens, plan.goodput * tokens, rate / plan.goodput);
  for (size_t c = 0; c < std::min(clusters.size(), kMostClustersShown); ++c) {
    AppendCluster(inputs, plan.clusters[c], clusters[c], c, &text);
  }
  if (clusters.size() > kMostClustersShown) {
    absl::StrAppend(&text, "\n", clusters.size() - kMostClustersShown, " more clusters: -o json lists all\n");
  }
  if (!inputs.notes.empty()) absl::StrAppend(&text, "\n");
  for (const std::string& note : inputs.notes) absl::StrAppend(&text, note, "\n");
  return text;
}

}  // namespace stagecoach
