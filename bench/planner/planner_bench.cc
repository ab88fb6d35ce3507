// Plans one synthetic fleet with our planner and with the baselines, and prints one JSON line.
//
//   bench_planner FAMILY WORKERS SEED [--searches N] [--baselines]
//
// FAMILY: a name of tests/support/fleet_families.h. --baselines: also every baseline that plans so many workers. Every
// figure is under the planner's cost model; a baseline that finds no cluster that works has 0 tokens a second.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/domain/planning/baselines/baseline_planner.h"
#include "coordinator/domain/planning/planner.h"
#include "tests/support/fleet_families.h"

namespace {

using namespace stagecoach;

constexpr uint32_t kMostForRavnest = 128;  // of more, its five clusters at most are too deep to work

struct Arguments {
  testing::FleetFamily family = testing::FleetFamily::kMixed;
  uint32_t workers = 0, searches = 0;
  uint64_t seed = 0;
  bool baselines = false;
};

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  if (argc < 4) return std::nullopt;
  bool known = false;
  for (const testing::FleetFamily family : testing::AllFleetFamilies()) {
    if (std::string(argv[1]) == testing::FamilyName(family)) arguments.family = family, known = true;
  }
  if (!known || !absl::SimpleAtoi(argv[2], &arguments.workers) || arguments.workers == 0) return std::nullopt;
  if (!absl::SimpleAtoi(argv[3], &arguments.seed)) return std::nullopt;
  for (int i = 4; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--baselines") {
      arguments.baselines = true;
    } else if (flag == "--searches" && i + 1 < argc && absl::SimpleAtoi(argv[i + 1], &arguments.searches)) {
      ++i;
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

// Of the processor: planning is one thread that waits for nothing, and other programs then count less.
double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Empty if the baseline does not plan so many workers.
std::string BaselineJson(Baseline baseline, const PlanModel& model, const Fleet& fleet, const Arguments& arguments) {
  const bool ravnest = baseline == Baseline::kRavnestGa || baseline == Baseline::kRavnestEqual;
  if (ravnest && arguments.workers > kMostForRavnest) return "";
  PlannerOptions options;
  options.seed = arguments.seed;
  const double begin = ProcessorSeconds();
  const absl::StatusOr<FleetPlan> plan = PlanBaseline(baseline, model, fleet, options);
  const double seconds = ProcessorSeconds() - begin;
  if (absl::IsInvalidArgument(plan.status())) return "";
  const double goodput = plan.ok() ? plan->goodput : 0;
  return absl::StrFormat(", \"%s\": {\"seconds\": %.6f, \"tokens_per_second\": %.3f}", BaselineName(baseline), seconds,
                         goodput * model.tokens_per_microbatch);
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = Parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "usage: bench_planner FAMILY WORKERS SEED [--searches N] [--baselines]\n");
    return 64;
  }
  const PlanModel model = testing::SyntheticModel();
  const Fleet fleet = testing::FamilyFleet(arguments->family, arguments->workers, arguments->seed);
  PlannerOptions options;
  options.explain = false;
  options.searches = arguments->searches;
  const double begin = ProcessorSeconds();
  const absl::StatusOr<FleetPlan> plan = PlanFleet(model, fleet, options);
  const double seconds = ProcessorSeconds() - begin;
  std::string line = absl::StrFormat("{\"family\": \"%s\", \"workers\": %d, \"seed\": %d, \"seconds\": %.6f", argv[1],
                                     arguments->workers, arguments->seed, seconds);
  if (plan.ok()) {
    absl::StrAppendFormat(&line,
                          ", \"tokens_per_second\": %.3f, \"bound_tokens_per_second\": %.3f, \"exact\": %s, "
                          "\"clusters\": %d, \"unused\": %d",
                          plan->goodput * model.tokens_per_microbatch, plan->bound * model.tokens_per_microbatch,
                          plan->exact ? "true" : "false", plan->clusters.size(), plan->unused.size());
  }
  if (arguments->baselines) {
    for (const Baseline baseline : {Baseline::kEqual, Baseline::kRandom, Baseline::kGreedyMemory, Baseline::kRavnestGa,
                                    Baseline::kRavnestEqual, Baseline::kDtfm}) {
      absl::StrAppend(&line, BaselineJson(baseline, model, fleet, *arguments));
    }
  }
  std::printf("%s}\n", line.c_str());
  return 0;
}
