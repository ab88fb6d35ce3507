#include "cli/commands/simulate_command.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "cli/planning/plan_report.h"
#include "cli/planning/planning_inputs.h"
#include "cli/planning/simulation_report.h"
#include "common/exit_code.h"
#include "common/status_macros.h"
#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/simulation/cluster_case.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMeasuredMicrobatches = 1000;
constexpr size_t kMostPlanBytes = 64u << 20;  // 20,000 workers with all their figures

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "stagecoach simulate: %s\n", std::string(status.message()).c_str());
  return absl::IsResourceExhausted(status) ? kExitUsage : ExitCodeOf(status);
}

absl::StatusOr<FleetPlan> PlanFromFile(const std::string& path, PlanningInputs* inputs) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostPlanBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) return absl::NotFoundError(path + ": cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  return ReadPlan(text, path, inputs);
}

// A plan with its figures under the facts of the files; nothing fails in the simulation.
absl::StatusOr<FleetPlan> PlanToJudge(const SimulateOptions& options, PlanningInputs* inputs) {
  ASSIGN_OR_RETURN(FleetPlan plan, options.plan.empty() ? MakePlan(inputs) : PlanFromFile(options.plan, inputs));
  if (inputs->model.plan.microbatches == 0) {
    return absl::InvalidArgumentError("schedule.microbatches: neither the run nor the plan says it");
  }
  ASSIGN_OR_RETURN(FleetPlan judged, ReevaluatePlan(inputs->model.plan, inputs->fleet, plan, /*stall_seconds=*/0));
  ApplyGivenJ(*inputs, &judged);
  return judged;
}

}  // namespace

int RunSimulate(const SimulateOptions& options) {
  absl::StatusOr<PlanningInputs> inputs = ReadPlanningInputs(options.fleet, options.run, options.clusters);
  if (!inputs.ok()) return Complain(inputs.status());
  const absl::StatusOr<FleetPlan> plan = PlanToJudge(options, &*inputs);
  if (!plan.ok()) return Complain(plan.status());
  const uint64_t m = inputs->model.plan.microbatches;
  std::vector<SimulatedCluster> clusters;
  for (const PlannedCluster& planned : plan->clusters) {
    SimulatedCluster& cluster = clusters.emplace_back();
    cluster.pipeline = CaseOfCluster(inputs->model.plan, inputs->fleet, planned, plan->clusters.size());
    cluster.pipeline.steps = options.steps > 0 ? options.steps : (kMeasuredMicrobatches + m - 1) / m;
    cluster.pipeline.seed = options.seed + clusters.size() - 1;
    cluster.pipeline.global_clip = inputs->spec.optimizer().clip() != CLIP_STAGE;
    for (SimulatedLink& link : cluster.pipeline.links) link.jitter_seconds = options.jitter_ms / 1e3;
    cluster.outcome = SimulatePipeline(cluster.pipeline);
  }
  const std::string text = options.format == "json" ? SimulationJson(*inputs, *plan, clusters).dump(2) + "\n"
                                                    : SimulationText(*inputs, *plan, clusters);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace stagecoach
