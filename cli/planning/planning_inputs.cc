#include "cli/planning/planning_inputs.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/run_spec/run_spec_yaml.h"
#include "common/status_macros.h"
#include "coordinator/domain/planning/cluster_counts.h"
#include "coordinator/planning_files/run_plan.h"
#include "model/data/dataset_index.h"

namespace stagecoach {
namespace {

constexpr uint32_t kByteVocabulary = 256;

// Paths are not needed here: `train` gives them by flags.
absl::StatusOr<RunSpec> ReadRun(const std::string& path) {
  YamlLines lines;
  ASSIGN_OR_RETURN(RunSpec spec, ReadRunSpecFile(path, &lines));
  if (spec.run_dir().empty()) spec.set_run_dir("-");
  if (spec.data().path().empty()) spec.mutable_data()->set_path("-");
  RETURN_IF_ERROR(PlaceSpecError(ValidateRunSpec(spec), path, lines));
  return spec;
}

// Token ids of the data, where the spec leaves them to it: of a prepared folder if it is here, else those of text.
void FillVocabulary(RunSpec* spec, std::vector<std::string>* notes) {
  if (spec->model().vocabulary() > 0) return;
  const std::string& path = spec->data().path();
  if (std::filesystem::exists(std::filesystem::path(path) / kDatasetIndexName)) {
    const absl::StatusOr<DatasetIndex> index = ReadDatasetIndex(path);
    if (index.ok()) {
      spec->mutable_model()->set_vocabulary(index->vocabulary);
      return;
    }
  }
  spec->mutable_model()->set_vocabulary(kByteVocabulary);
  notes->push_back(
      absl::StrCat("model.vocabulary is not given: ", kByteVocabulary, ", that of text as bytes, is assumed"));
}

}  // namespace

absl::StatusOr<PlanningInputs> ReadPlanningInputs(const std::string& fleet_file, const std::string& run_file,
                                                  uint32_t clusters) {
  PlanningInputs inputs;
  ASSIGN_OR_RETURN(const WrittenFleet written, ReadFleetFile(fleet_file));
  ASSIGN_OR_RETURN(inputs.spec, ReadRun(run_file));
  FillVocabulary(&inputs.spec, &inputs.notes);
  inputs.fleet_name = written.file.name().empty() ? "fleet" : written.file.name();
  const AveragingSpec& averaging = inputs.spec.averaging();
  inputs.clusters = clusters > 0 ? clusters : averaging.choose_clusters() ? 0 : averaging.clusters();
  RunModelOptions options;
  options.averages = inputs.clusters != 1;
  options.rounds_in_limit = !AllWorkersAreGpus(written.file);
  const absl::StatusOr<RunModel> model = RunModelOf(inputs.spec, options);
  if (!model.ok()) return absl::InvalidArgumentError(absl::StrCat(run_file, ": ", model.status().message()));
  inputs.model = *model;
  ASSIGN_OR_RETURN(inputs.fleet, FleetFor(written, inputs.model));
  if (inputs.clusters > inputs.fleet.workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs.clusters, " clusters need as many workers, the fleet has ", inputs.fleet.workers.size()));
  }
  return inputs;
}

absl::StatusOr<FleetPlan> MakePlan(PlanningInputs* inputs) {
  PlanModel& model = inputs->model.plan;
  const bool given = model.microbatches > 0;
  PlannerOptions options;
  options.clusters = inputs->clusters;
  options.seed = inputs->seed;
  absl::StatusOr<FleetPlan> plan = PlanRunWith(
      [&](const PlanModel& with_m) {
        return inputs->baseline ? PlanBaseline(*inputs->baseline, with_m, inputs->fleet, options)
                                : PlanFleet(with_m, inputs->fleet, options);
      },
      &model);
  // Trying again does not help: it is what was asked that cannot be.
  if (absl::IsResourceExhausted(plan.status())) return absl::FailedPreconditionError(plan.status().message());
  if (!plan.ok()) return plan.status();
  if (!given) inputs->notes.push_back(absl::StrCat("schedule.microbatches is left to the plan: ", model.microbatches));
  ApplyGivenJ(*inputs, &*plan);
  return plan;
}

void CompareClusterCounts(const PlanningInputs& inputs, FleetPlan* plan) {
  if (inputs.clusters > 0 || inputs.baseline) return;
  const auto chosen = static_cast<uint32_t>(plan->clusters.size());
  plan->other_counts = OtherClusterCounts(inputs.model.plan, inputs.fleet, PlannerOptions(), chosen);
}

void ApplyGivenJ(const PlanningInputs& inputs, FleetPlan* plan) {
  const ScheduleSpec& schedule = inputs.spec.schedule();
  const uint32_t m = inputs.model.plan.microbatches;
  const bool two_buffers = schedule.kind() == SCHEDULE_KIND_2BW;
  if (!two_buffers && (!schedule.has_j() || schedule.j() <= 0)) return;
  const uint32_t j = two_buffers ? m : static_cast<uint32_t>(schedule.j());
  for (PlannedCluster& cluster : plan->clusters) {
    if (cluster.j > j) {
      plan->explanation.push_back(absl::StrCat("J ", j, " of the run is below ", cluster.j,
                                               ", which these windows need: stages wait for updates"));
    }
    cluster.j = j;
    cluster.phi = static_cast<double>(j) / m;
  }
}

}  // namespace stagecoach
