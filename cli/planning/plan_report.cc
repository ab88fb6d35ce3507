#include "cli/planning/plan_report.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

// A page; -o json lists everything.
constexpr size_t kMostClustersShown = 16, kMostNamesShown = 10;

std::string Gib(uint64_t bytes) { return absl::StrFormat("%.2f", static_cast<double>(bytes) / (1 << 30)); }

std::string Names(const PlanningInputs& inputs, const std::vector<uint32_t>& workers) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(workers.size(), kMostNamesShown); ++i) {
    names.push_back(inputs.fleet.workers[workers[i]].name);
  }
  if (workers.size() > names.size()) names.push_back(absl::StrCat("and ", workers.size() - names.size(), " more"));
  return absl::StrJoin(names, ", ");
}

Json StageJson(const PlanningInputs& inputs, const PlannedStage& stage) {
  const FleetWorker& worker = inputs.fleet.workers[stage.worker];
  Json json;
  json["worker"] = worker.name;
  if (!worker.region.empty()) json["region"] = worker.region;
  json["first_unit"] = stage.first_unit;
  json["end_unit"] = stage.end_unit;
  json["compute_seconds"] = stage.compute_seconds;
  json["up_seconds"] = stage.up_seconds;
  json["down_seconds"] = stage.down_seconds;
  json["memory_bytes"] = stage.memory_bytes;
  json["memory_limit_bytes"] = worker.memory_bytes;
  return json;
}

void AppendCluster(const PlanningInputs& inputs, const PlannedCluster& cluster, size_t number, std::string* text) {
  absl::StrAppendFormat(text,
                        "\ncluster %d: %.0f tokens/s; a microbatch every %.1f ms, loop %.0f ms, N %d, J %d, phi %.2f\n"
                        "  bottleneck: %s\n",
                        number, cluster.goodput * inputs.model.plan.tokens_per_microbatch,
                        cluster.microbatch_seconds * 1e3, cluster.loop_seconds * 1e3, cluster.window, cluster.j,
                        cluster.phi, cluster.bottleneck);
  absl::StrAppendFormat(text, "  %-5s %-18s %-12s %-9s %10s %8s %8s %10s %8s\n", "STAGE", "WORKER", "REGION", "UNITS",
                        "COMPUTE MS", "UP MS", "DOWN MS", "MEMORY GIB", "OF");
  for (size_t i = 0; i < cluster.stages.size(); ++i) {
    const PlannedStage& stage = cluster.stages[i];
    const FleetWorker& worker = inputs.fleet.workers[stage.worker];
    absl::StrAppendFormat(text, "  %-5d %-18s %-12s %-9s %10.1f %8.1f %8.1f %10s %8s\n", i, worker.name,
                          worker.region.empty() ? "-" : worker.region,
                          absl::StrCat(stage.first_unit, "-", stage.end_unit - 1), stage.compute_seconds * 1e3,
                          stage.up_seconds * 1e3, stage.down_seconds * 1e3, Gib(stage.memory_bytes),
                          worker.memory_bytes > 0 ? Gib(worker.memory_bytes) : "-");
  }
}

absl::Status Wrong(const std::string& file_name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", what));
}

absl::StatusOr<PlannedStage> ReadStage(const Json& json, const std::map<std::string, uint32_t>& workers,
                                       const std::string& where) {
  PlannedStage stage;
  if (!json.is_object() || !json.contains("worker") || !json["worker"].is_string()) {
    return Wrong(where, "a stage names its worker");
  }
  const auto worker = workers.find(json["worker"].get<std::string>());
  if (worker == workers.end()) {
    return Wrong(
        where, absl::StrCat("there is no worker ", json["worker"].get<std::string>().substr(0, 80), " in this fleet"));
  }
  stage.worker = worker->second;
  for (const bool first : {true, false}) {
    const char* key = first ? "first_unit" : "end_unit";
    if (!json.contains(key) || !json[key].is_number_unsigned() || json[key].get<uint64_t>() > UINT32_MAX) {
      return Wrong(where, absl::StrCat(key, " is missing, or not a number of a unit"));
    }
    (first ? stage.first_unit : stage.end_unit) = json[key].get<uint32_t>();
  }
  return stage;
}

}  // namespace

Json PlanJson(const PlanningInputs& inputs, const FleetPlan& plan) {
  const double tokens = inputs.model.plan.tokens_per_microbatch;
  Json json;
  json["fleet"] = inputs.fleet_name;
  json["run"] = inputs.spec.name().empty() ? "run" : inputs.spec.name();
  json["workers"] = inputs.fleet.workers.size();
  json["tokens_per_second"] = plan.goodput * tokens;
  if (plan.bound > 0) json["bound_tokens_per_second"] = plan.bound * tokens;
  json["exact"] = plan.exact;
  json["microbatches_per_step"] = inputs.model.plan.microbatches;
  json["tokens_per_microbatch"] = tokens;
  json["frame_bytes"] = inputs.model.plan.frame_bytes;
  json["clusters"] = Json::array();
  for (const PlannedCluster& cluster : plan.clusters) {
    Json& row = json["clusters"].emplace_back();
    row["tokens_per_second"] = cluster.goodput * tokens;
    row["microbatch_seconds"] = cluster.microbatch_seconds;
    row["loop_seconds"] = cluster.loop_seconds;
    row["window"] = cluster.window;
    row["j"] = cluster.j;
    row["phi"] = cluster.phi;
    row["bottleneck"] = cluster.bottleneck;
    row["stages"] = Json::array();
    for (const PlannedStage& stage : cluster.stages) row["stages"].push_back(StageJson(inputs, stage));
  }
  json["unused"] = Json::array();
  for (const uint32_t worker : plan.unused) json["unused"].push_back(inputs.fleet.workers[worker].name);
  json["standbys"] = Json::array();
  for (const PlannedStandby& standby : plan.standbys) {
    json["standbys"].push_back({{"worker", inputs.fleet.workers[standby.worker].name},
                                {"protects", inputs.fleet.workers[standby.protects].name},
                                {"tokens_per_second", standby.goodput * tokens}});
  }
  json["other_counts"] = Json::array();
  for (const ClusterCount& count : plan.other_counts) {
    Json& row = json["other_counts"].emplace_back();
    row["clusters"] = count.clusters;
    row["tokens_per_second"] = count.goodput * tokens;
    if (!count.why_not.empty()) row["why_not"] = count.why_not;
  }
  json["explanation"] = plan.explanation;
  json["notes"] = inputs.notes;
  return json;
}

std::string PlanText(const PlanningInputs& inputs, const FleetPlan& plan) {
  const double tokens = inputs.model.plan.tokens_per_microbatch;
  std::string text = absl::StrFormat("%s on %s: %.0f tokens/s", inputs.spec.name().empty() ? "run" : inputs.spec.name(),
                                     inputs.fleet_name, plan.goodput * tokens);
  if (plan.bound > 0) {
    absl::StrAppendFormat(&text, "; best possible at most %.0f (%.3f)%s", plan.bound * tokens,
                          plan.goodput / plan.bound, plan.exact ? "; no plan is better" : "");
  }
  absl::StrAppendFormat(&text, "\n%d workers, %d clusters, M %d, %.0f tokens a microbatch, frames of %.1f KiB\n",
                        inputs.fleet.workers.size(), plan.clusters.size(), inputs.model.plan.microbatches, tokens,
                        inputs.model.plan.frame_bytes / 1024);
  for (size_t i = 0; i < std::min(plan.clusters.size(), kMostClustersShown); ++i) {
    AppendCluster(inputs, plan.clusters[i], i, &text);
  }
  if (plan.clusters.size() > kMostClustersShown) {
    absl::StrAppend(&text, "\n", plan.clusters.size() - kMostClustersShown, " more clusters: -o json lists all\n");
  }
  absl::StrAppend(&text, "\n");
  if (!plan.unused.empty()) absl::StrAppend(&text, "without a stage: ", Names(inputs, plan.unused), "\n");
  for (size_t i = 0; i < std::min(plan.standbys.size(), kMostNamesShown); ++i) {
    const PlannedStandby& standby = plan.standbys[i];
    absl::StrAppendFormat(&text, "standby: %s for %s (%.0f tokens/s)\n", inputs.fleet.workers[standby.worker].name,
                          inputs.fleet.workers[standby.protects].name, standby.goodput * tokens);
  }
  for (const std::string& line : plan.explanation) absl::StrAppend(&text, line, "\n");
  for (const ClusterCount& count : plan.other_counts) {
    absl::StrAppendFormat(&text, "with %d cluster%s: ", count.clusters, count.clusters == 1 ? "" : "s");
    if (count.goodput > 0) {
      absl::StrAppendFormat(&text, "%.0f tokens/s (%+.1f %%)\n", count.goodput * tokens,
                            (count.goodput / plan.goodput - 1) * 100);
    } else {
      absl::StrAppend(&text, "no plan: ", count.why_not, "\n");
    }
  }
  for (const std::string& note : inputs.notes) absl::StrAppend(&text, note, "\n");
  return text;
}

absl::StatusOr<FleetPlan> ReadPlan(const std::string& text, const std::string& file_name, PlanningInputs* inputs) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("clusters") || !json["clusters"].is_array() || json["clusters"].empty()) {
    return Wrong(file_name, "not a plan: `stagecoach plan -o json` writes one");
  }
  uint32_t& m = inputs->model.plan.microbatches;
  if (m == 0 && json.contains("microbatches_per_step") && json["microbatches_per_step"].is_number_unsigned()) {
    m = static_cast<uint32_t>(std::clamp<uint64_t>(json["microbatches_per_step"].get<uint64_t>(), 1, 4096));
  }
  std::map<std::string, uint32_t> workers;
  for (uint32_t i = 0; i < inputs->fleet.workers.size(); ++i) workers[inputs->fleet.workers[i].name] = i;
  FleetPlan plan;
  for (const Json& cluster : json["clusters"]) {
    PlannedCluster& planned = plan.clusters.emplace_back();
    const std::string where = absl::StrCat(file_name, ": clusters[", plan.clusters.size() - 1, "]");
    if (!cluster.is_object() || !cluster.contains("stages") || !cluster["stages"].is_array() ||
        cluster["stages"].empty()) {
      return Wrong(where, "has no stages");
    }
    for (const Json& row : cluster["stages"]) {
      const auto stage = ReadStage(row, workers, absl::StrCat(where, ".stages[", planned.stages.size(), "]"));
      if (!stage.ok()) return stage.status();
      planned.stages.push_back(*stage);
    }
    if (!cluster.contains("window") || !cluster["window"].is_number_unsigned()) {
      return Wrong(where, "window is missing: the most microbatches in flight");
    }
    planned.window = static_cast<uint32_t>(std::clamp<uint64_t>(cluster["window"].get<uint64_t>(), 1, 256));
  }
  return plan;
}

}  // namespace stagecoach
