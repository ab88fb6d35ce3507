#include "coordinator/service/cluster_choice.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/status_macros.h"
#include "coordinator/domain/division_choice.h"
#include "coordinator/planning_files/run_model.h"
#include "coordinator/planning_files/run_plan.h"

namespace stagecoach {
namespace {

struct Alternative {
  std::vector<std::vector<uint32_t>> clusters;  // indices of measured workers, in pipeline order
  RunInputs inputs;
  Measurements division;
  double tokens_per_second = 0, loop_seconds = 0;
};

std::string Clusters(size_t count) { return absl::StrCat(count, count == 1 ? " cluster" : " clusters"); }

// Workers that compete for the same thing: the cores of a host, a GPU; a fake executor competes for nothing.
std::string RivalsOf(const WorkerDescription& worker) {
  if (worker.device == "fake") return absl::StrCat(worker.host, "/", worker.name);
  return absl::StrCat(worker.host, "/", worker.device);
}

KindSeconds Times(const UnitTiming& timing, double crowding) {
  return {timing.forward_seconds() * crowding, timing.backward_seconds() * crowding,
          timing.update_seconds() * crowding};
}

// With `clusters` clusters (0: several, not decided), and activations as the workers measured them.
absl::StatusOr<PlanModel> ModelOf(const RunInputs& inputs, const Measurements& measured, uint32_t clusters) {
  RunModelOptions options;
  options.averages = clusters != 1;
  options.rounds_in_limit = std::any_of(measured.workers.begin(), measured.workers.end(), [](const auto& worker) {
    return worker.device.empty() || worker.device == "cpu";
  });
  RunSpec spec = inputs.spec;
  if (clusters == 1) spec.clear_averaging();
  ASSIGN_OR_RETURN(const RunModel model, RunModelOf(spec, options));
  std::vector<uint64_t> activations(kNumUnitKinds, 0);
  for (const auto& [name, probe] : measured.probes) {
    const UnitTiming* timings[kNumUnitKinds] = {&probe.embedding(), &probe.block(), &probe.tail_block(), &probe.head()};
    for (uint32_t kind = 0; kind < kNumUnitKinds; ++kind) {
      activations[kind] = std::max<uint64_t>(activations[kind], timings[kind]->activation_bytes());
    }
  }
  PlanModel plan = model.plan;
  for (PlanUnit& unit : plan.units) unit.activation_bytes = activations[unit.kind];
  return plan;
}

// The run and its measurements as if these clusters had been asked for.
void Divide(const RunInputs& inputs, const Measurements& measured, Alternative* alternative) {
  alternative->inputs = inputs;
  alternative->division = measured;
  alternative->division.workers.clear();
  alternative->division.cluster_sizes.clear();
  for (const std::vector<uint32_t>& cluster : alternative->clusters) {
    for (const uint32_t worker : cluster) alternative->division.workers.push_back(measured.workers[worker]);
    alternative->division.cluster_sizes.push_back(cluster.size());
  }
  RunSpec* spec = &alternative->inputs.spec;
  if (alternative->clusters.size() == 1) return spec->clear_averaging();
  spec->mutable_averaging()->set_clusters(static_cast<uint32_t>(alternative->clusters.size()));
  spec->mutable_averaging()->clear_choose_clusters();
}

absl::StatusOr<Alternative> Compare(const RunInputs& inputs, const Measurements& measured, const FleetPlan& plan,
                                    double tokens_per_microbatch, const PredictDivision& predict) {
  Alternative alternative;
  double wire_seconds = 0;  // frames and averaging, of the busiest worker
  for (const PlannedCluster& cluster : plan.clusters) {
    std::vector<uint32_t>& workers = alternative.clusters.emplace_back();
    for (const PlannedStage& stage : cluster.stages) {
      workers.push_back(stage.worker);
      wire_seconds = std::max({wire_seconds, stage.up_seconds, stage.down_seconds});
    }
  }
  Divide(inputs, measured, &alternative);
  ASSIGN_OR_RETURN(const DivisionSpeed speed, predict(alternative.inputs, alternative.division));
  double slowest = wire_seconds > 0 ? 1 / wire_seconds : std::numeric_limits<double>::infinity();
  for (const double rate : speed.microbatches_per_second) slowest = std::min(slowest, rate);
  alternative.tokens_per_second = static_cast<double>(plan.clusters.size()) * slowest * tokens_per_microbatch;
  alternative.loop_seconds = speed.loop_seconds;
  return alternative;
}

std::string Describe(const Alternative& alternative, bool chosen) {
  std::vector<std::string> clusters;
  auto next = alternative.division.workers.begin();
  for (const size_t size : alternative.division.cluster_sizes) {
    const auto end = next + static_cast<ptrdiff_t>(size);
    clusters.push_back(absl::StrJoin(
        next, end, " ", [](std::string* text, const WorkerDescription& worker) { text->append(worker.name); }));
    next = end;
  }
  return absl::StrFormat("%s%s: predicted %.0f tokens/s, loop %.0f ms; %s", Clusters(clusters.size()),
                         chosen ? " (chosen)" : "", alternative.tokens_per_second, alternative.loop_seconds * 1e3,
                         absl::StrJoin(clusters, " | "));
}

void NoteUnused(const Measurements& measured, const Measurements& division, std::vector<std::string>* explanation) {
  std::vector<std::string> unused;
  for (const WorkerDescription& worker : measured.workers) {
    const bool used = std::any_of(division.workers.begin(), division.workers.end(),
                                  [&](const WorkerDescription& other) { return other.name == worker.name; });
    if (!used) unused.push_back(worker.name);
  }
  if (!unused.empty()) explanation->push_back(absl::StrCat("not used, free: ", absl::StrJoin(unused, " ")));
}

}  // namespace

Fleet MeasuredFleet(const Measurements& measured, uint32_t threads) {
  std::map<std::string, uint32_t> rivals;
  for (const WorkerDescription& worker : measured.workers) ++rivals[RivalsOf(worker)];
  const std::map<std::string, uint64_t> tenants = TenantsOfMemory(measured);
  Fleet fleet;
  for (const WorkerDescription& worker : measured.workers) {
    const ProbeResult& probe = measured.probes.at(worker.name);
    const bool cpu = worker.device.empty() || worker.device == "cpu";
    const double crowding =
        std::max(1.0, rivals[RivalsOf(worker)] * (cpu ? static_cast<double>(threads) / std::max(1u, worker.cores) : 1));
    FleetWorker row;
    row.name = worker.name;
    row.host = worker.host;
    row.memory_bytes = StageMemoryLimit(worker, tenants);
    for (const UnitTiming* timing : {&probe.embedding(), &probe.block(), &probe.tail_block(), &probe.head()}) {
      row.kinds.push_back(Times(*timing, crowding));
    }
    fleet.workers.push_back(std::move(row));
  }
  for (uint32_t from = 0; from < fleet.workers.size(); ++from) {
    for (uint32_t to = 0; to < fleet.workers.size(); ++to) {
      if (from == to) continue;
      FleetLink& link = fleet.links[{from, to}];
      const auto found = measured.links.find({fleet.workers[from].name, fleet.workers[to].name});
      link.usable = found != measured.links.end() && found->second.error().empty();
      if (!link.usable) continue;
      link.rtt_seconds = found->second.rtt_seconds();
      link.bytes_per_second = found->second.bytes_per_second();
      // All that a worker sends goes through its uplink, which carries at least what its fastest link does.
      double &up = fleet.workers[from].up_bytes_per_second, &down = fleet.workers[to].down_bytes_per_second;
      up = std::max(up, link.bytes_per_second);
      down = std::max(down, link.bytes_per_second);
    }
  }
  return fleet;
}

absl::StatusOr<ClusterChoice> ChooseClusters(const RunInputs& inputs, const Measurements& measured,
                                             const PredictDivision& predict) {
  const Fleet fleet = MeasuredFleet(measured, inputs.spec.threads());
  const uint32_t most = std::min(MostClusters(inputs.spec), static_cast<uint32_t>(fleet.workers.size()));
  std::vector<uint32_t> counts = {1};
  while (counts.back() * 2 <= most) counts.push_back(counts.back() * 2);
  if (most > 1) counts.push_back(0);  // the planner's own choice
  std::vector<Alternative> alternatives;
  std::set<size_t> seen;
  std::vector<std::string> impossible;
  absl::Status failure;
  for (const uint32_t count : counts) {
    ASSIGN_OR_RETURN(PlanModel model, ModelOf(inputs, measured, count));
    PlannerOptions options;
    options.clusters = count;
    options.explain = false;
    const absl::StatusOr<FleetPlan> plan = PlanRun(fleet, options, &model);
    if (plan.ok() && (plan->clusters.size() > most || !seen.insert(plan->clusters.size()).second)) continue;
    absl::StatusOr<Alternative> compared = plan.ok()
                                               ? Compare(inputs, measured, *plan, model.tokens_per_microbatch, predict)
                                               : absl::StatusOr<Alternative>(plan.status());
    if (compared.ok()) {
      alternatives.push_back(*std::move(compared));
    } else if (count > 0) {
      if (failure.ok()) failure = compared.status();
      impossible.push_back(absl::StrCat(Clusters(count), ": not possible: ", compared.status().message()));
    }
  }
  if (alternatives.empty()) return failure;
  std::sort(alternatives.begin(), alternatives.end(),
            [](const Alternative& a, const Alternative& b) { return a.clusters.size() < b.clusters.size(); });
  std::vector<DivisionFigures> figures;
  for (const Alternative& each : alternatives) {
    figures.push_back({each.clusters.size(), each.tokens_per_second, each.loop_seconds});
  }
  const Alternative& best = alternatives[BestDivision(figures)];
  ClusterChoice choice{best.inputs, best.division, {}};
  for (const Alternative& each : alternatives) choice.explanation.push_back(Describe(each, &each == &best));
  choice.explanation.insert(choice.explanation.end(), impossible.begin(), impossible.end());
  NoteUnused(measured, best.division, &choice.explanation);
  return choice;
}

}  // namespace stagecoach
