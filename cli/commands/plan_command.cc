#include "cli/commands/plan_command.h"

#include <cstdio>

#include "cli/planning/plan_report.h"
#include "cli/planning/planning_inputs.h"
#include "common/exit_code.h"

namespace stagecoach {
namespace {

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "stagecoach plan: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace

int RunPlan(const PlanOptions& options) {
  absl::StatusOr<PlanningInputs> inputs = ReadPlanningInputs(options.fleet, options.run, options.clusters);
  if (!inputs.ok()) return Complain(inputs.status());
  inputs->baseline = BaselineNamed(options.planner);
  inputs->seed = options.seed;
  absl::StatusOr<FleetPlan> plan = MakePlan(&*inputs);
  if (!plan.ok()) return Complain(plan.status());
  CompareClusterCounts(*inputs, &*plan);
  const std::string text =
      options.format == "json" ? PlanJson(*inputs, *plan).dump(2) + "\n" : PlanText(*inputs, *plan);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace stagecoach
