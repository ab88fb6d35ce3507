// stagecoach plan: the examples that ship, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

using nlohmann::json;
using testing::ProgramResult;
using testing::RunProgram;

std::string Example(const std::string& path) { return absl::StrCat(testing::SourceFolder(), "/examples/", path); }

// Every cluster covers the model once, nobody has two stages, everything fits.
void ExpectSound(const json& plan) {
  EXPECT_GT(plan["tokens_per_second"].get<double>(), 0);
  if (plan.contains("bound_tokens_per_second")) {
    EXPECT_LE(plan["tokens_per_second"].get<double>(), plan["bound_tokens_per_second"].get<double>() * (1 + 1e-6));
  }
  std::set<std::string> workers;
  uint32_t units = 0;
  ASSERT_FALSE(plan["clusters"].empty());
  for (const json& cluster : plan["clusters"]) {
    uint32_t next = 0;
    for (const json& stage : cluster["stages"]) {
      EXPECT_TRUE(workers.insert(stage["worker"].get<std::string>()).second) << stage;
      EXPECT_EQ(stage["first_unit"].get<uint32_t>(), next);
      next = stage["end_unit"].get<uint32_t>();
      const auto limit = stage["memory_limit_bytes"].get<uint64_t>();
      if (limit > 0) {
        EXPECT_LE(stage["memory_bytes"].get<uint64_t>(), limit) << stage;
      }
    }
    if (units == 0) units = next;
    EXPECT_EQ(next, units);
    EXPECT_FALSE(cluster["bottleneck"].get<std::string>().empty());
  }
  EXPECT_EQ(workers.size() + plan["unused"].size(), plan["workers"].get<size_t>());
}

TEST(PlanExamplesTest, EveryFleet_IsPlanned) {
  const std::vector<std::pair<std::string, std::string>> pairs = {{"two-sites", "two-sites"},
                                                                  {"cloud-64", "llama-8b"},
                                                                  {"eight-stages", "protocol-nanogpt"},
                                                                  {"lab-12", "quickstart"},
                                                                  {"home-1000", "protocol-nanogpt"}};
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Example("fleets"))) files += entry.is_regular_file();
  EXPECT_EQ(files, pairs.size()) << "every file of examples/fleets has a row here";
  for (const auto& [fleet, run] : pairs) {
    SCOPED_TRACE(fleet);
    const std::vector<std::string> arguments = {"plan", Example("fleets/" + fleet + ".yaml"),
                                                Example("runs/" + run + ".yaml")};
    const ProgramResult page = RunProgram("stagecoach", arguments);
    ASSERT_EQ(page.exit_code, 0) << page.error;
    EXPECT_TRUE(absl::StrContains(page.output, absl::StrCat(run, " on ", fleet))) << page.output;
    std::vector<std::string> with_json = arguments;
    with_json.insert(with_json.end(), {"-o", "json"});
    const ProgramResult result = RunProgram("stagecoach", with_json);
    ASSERT_EQ(result.exit_code, 0) << result.error;
    const json plan = json::parse(result.output, nullptr, false);
    ASSERT_TRUE(plan.is_object()) << result.output;
    ExpectSound(plan);
    EXPECT_EQ(RunProgram("stagecoach", with_json).output, result.output);
  }
}

constexpr const char* kRun =
    "model: {width: 64, layers: 4, heads: 4, vocabulary: 256}\n"
    "schedule: {steps: 10, microbatches: 8, sequences: 2, sequence_tokens: 32}\n";
constexpr const char* kTwoWorkers =
    "devices: [{name: g, tflops: 1, efficiency: 0.5}]\n"
    "workers: [{name: a, device: g, up_mbit: 100, down_mbit: 100}, {name: b, device: g, up_mbit: 100}]\n";

TEST(PlanCommandTest, MistakesAndImpossiblePlans_AreRefusedWithReasons) {
  testing::TemporaryFolder folder;
  const std::string run = folder.Write("run.yaml", kRun), fleet = folder.Write("fleet.yaml", kTwoWorkers);
  const std::string typo = folder.Write("typo.yaml", "workers:\n  - {name: a, devise: g}\n");
  const std::string run_typo = folder.Write("run-typo.yaml", "model: {widht: 64}\n");
  const std::string gpipe = folder.Write(
      "gpipe.yaml", absl::StrCat("model: {width: 64, layers: 4, heads: 4, vocabulary: 256}\n",
                                 "schedule: {kind: gpipe, steps: 10, sequences: 2, sequence_tokens: 32}\n"));
  const std::string small = folder.Write("small.yaml",
                                         "devices: [{name: g, tflops: 1, efficiency: 0.5, memory_gib: 0.0001}]\n"
                                         "workers: [{name: a, device: g}, {name: b, device: g}]\n");
  const std::string apart = folder.Write("apart.yaml",
                                         "devices: [{name: g, tflops: 1, efficiency: 0.5, memory_gib: 0.005}]\n"
                                         "workers: [{name: a, device: g}, {name: b, device: g}]\n"
                                         "links: [{from: a, to: b, usable: false}]\n");
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"plan", fleet}, "run is required"},
      {{"plan", folder.File("none.yaml"), run}, "none.yaml: cannot be read"},
      {{"plan", typo, run}, "typo.yaml:2: workers[0].devise: unknown key; allowed: name"},
      {{"plan", fleet, run_typo}, "run-typo.yaml:1: model.widht: unknown key"},
      {{"plan", fleet, gpipe}, "schedule.kind: is a baseline"},
      {{"plan", fleet, run, "--clusters", "3"}, "3 clusters need as many workers, the fleet has 2"},
      {{"plan", fleet, run, "--clusters", "0"}, "--clusters"},
      // No worker with enough memory; a pair that cannot reach each other.
      {{"plan", small, run}, "the worker with the most, a, has 0.0001 GiB. Add a worker with more memory"},
      {{"plan", apart, run}, "worker a reaches no other worker, and the others cannot hold the model alone"},
      {{"plan", fleet, run, "-o", "xml"}, "xml"},
      {{"plan", fleet, run, "--planner", "best"}, "best"},
      {{"plan", small, run, "--planner", "equal"}, "stagecoach plan: equal finds no cluster"},
  };
  for (const Case& wrong : cases) {
    const ProgramResult result = RunProgram("stagecoach", wrong.arguments);
    EXPECT_EQ(result.exit_code, 64) << wrong.message << "\n" << result.output << result.error;
    EXPECT_TRUE(absl::StrContains(result.error, wrong.message)) << result.error;
    EXPECT_EQ(result.output, "");
  }
}

TEST(PlanCommandTest, Baselines_ArePlansOfTheSameKind) {
  for (const char* planner : {"equal", "random", "greedy-memory", "ravnest-ga", "ravnest-equal", "dtfm"}) {
    SCOPED_TRACE(planner);
    const std::vector<std::string> arguments = {
        "plan", Example("fleets/lab-12.yaml"), Example("runs/quickstart.yaml"), "--planner", planner, "-o", "json"};
    const ProgramResult result = RunProgram("stagecoach", arguments);
    ASSERT_EQ(result.exit_code, 0) << result.error;
    const json plan = json::parse(result.output);
    ExpectSound(plan);
    EXPECT_TRUE(absl::StrContains(plan["explanation"].dump(), planner)) << plan["explanation"];
    EXPECT_EQ(RunProgram("stagecoach", arguments).output, result.output);
  }
}

TEST(PlanCommandTest, ChosenNumberOfClusters_IsSetBesideOthers) {
  const std::vector<std::string> arguments = {"plan", Example("fleets/two-sites.yaml"),
                                              Example("runs/quickstart.yaml")};
  std::vector<std::string> with_json = arguments, fixed = arguments;
  with_json.insert(with_json.end(), {"-o", "json"});
  fixed.insert(fixed.end(), {"-o", "json", "--clusters", "2"});
  const json plan = json::parse(RunProgram("stagecoach", with_json).output, nullptr, false);
  ASSERT_TRUE(plan.is_object());
  ASSERT_FALSE(plan["other_counts"].empty());
  EXPECT_EQ(plan["other_counts"][0]["clusters"], 1);
  const size_t chosen = plan["clusters"].size();
  for (const json& count : plan["other_counts"]) {
    EXPECT_NE(count["clusters"], chosen);
    EXPECT_LE(count["tokens_per_second"].get<double>(), plan["tokens_per_second"].get<double>() * (1 + 1e-9));
  }
  EXPECT_TRUE(absl::StrContains(RunProgram("stagecoach", arguments).output, "with 1 cluster: "));
  // Asked for, nothing was chosen.
  EXPECT_TRUE(json::parse(RunProgram("stagecoach", fixed).output)["other_counts"].empty());
}

TEST(PlanCommandTest, OpenM_IsSettledAndSaid) {
  testing::TemporaryFolder folder;
  const std::string run = folder.Write("run.yaml",
                                       "model: {width: 64, layers: 4, heads: 4}\n"
                                       "schedule: {steps: 10, sequences: 2, sequence_tokens: 32}\n");
  const ProgramResult result =
      RunProgram("stagecoach", {"plan", folder.Write("fleet.yaml", kTwoWorkers), run, "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const json plan = json::parse(result.output);
  uint32_t window = 0;
  for (const json& cluster : plan["clusters"]) window = std::max(window, cluster["window"].get<uint32_t>());
  EXPECT_EQ(plan["microbatches_per_step"].get<uint32_t>(), 2 * window);
  EXPECT_TRUE(absl::StrContains(plan["notes"].dump(), "schedule.microbatches is left to the plan")) << plan["notes"];
  EXPECT_TRUE(absl::StrContains(plan["notes"].dump(), "that of text as bytes")) << plan["notes"];
}

TEST(PlanCommandTest, FixedJ_IsThatOfTheRun) {
  testing::TemporaryFolder folder;
  const std::string fixed = folder.Write("fixed.yaml",
                                         "model: {width: 64, layers: 4, heads: 4, vocabulary: 256}\n"
                                         "schedule: {steps: 10, microbatches: 8, j: 1, sequences: 2, "
                                         "sequence_tokens: 32}\naveraging: {clusters: 1}\n");
  const std::string fleet = folder.Write("fleet.yaml", kTwoWorkers);
  const ProgramResult result = RunProgram("stagecoach", {"plan", fleet, fixed, "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const json plan = json::parse(result.output);
  ASSERT_EQ(plan["clusters"].size(), 1u);
  EXPECT_EQ(plan["clusters"][0]["j"], 1);
  EXPECT_EQ(plan["clusters"][0]["phi"], 0.125);
}

TEST(SimulateCommandTest, PlanOfTheSameFiles_RunsAsPredicted) {
  const std::vector<std::string> arguments = {"simulate", Example("fleets/eight-stages.yaml"),
                                              Example("runs/protocol-nanogpt.yaml"), "-o", "json"};
  const ProgramResult result = RunProgram("stagecoach", arguments);
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const json report = json::parse(result.output);
  const double simulated = report["simulated_tokens_per_second"], predicted = report["predicted_tokens_per_second"];
  EXPECT_NEAR(simulated / predicted, 1, 0.1);
  for (const json& stage : report["clusters"][0]["stages"]) {
    double sum = stage["compute"];
    for (const json& share : stage["waiting"]) sum += share.get<double>();
    EXPECT_NEAR(sum, 1, 1e-6) << stage;
  }
  EXPECT_EQ(RunProgram("stagecoach", arguments).output, result.output);
}

TEST(SimulateCommandTest, GivenPlan_IsJudgedAndMistakesAreRefused) {
  testing::TemporaryFolder folder;
  const std::string fleet = folder.Write("fleet.yaml", kTwoWorkers), run = folder.Write("run.yaml", kRun);
  const auto judge = [&](const std::string& plan) {
    return RunProgram("stagecoach", {"simulate", fleet, run, "--plan", folder.Write("plan.json", plan)});
  };
  const auto stages = [](const std::string& rows) {
    return absl::StrCat(R"({"clusters": [{"window": 4, "stages": [)", rows, "]}]}");
  };
  const ProgramResult good = judge(stages(R"({"worker": "b", "first_unit": 0, "end_unit": 2},)"
                                          R"({"worker": "a", "first_unit": 2, "end_unit": 6})"));
  EXPECT_EQ(good.exit_code, 0) << good.error;
  EXPECT_TRUE(absl::StrContains(good.output, "tokens/s simulated")) << good.output;
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{}", "plan.json: not a plan"},
      {R"({"clusters": [{"stages": [{"worker": "a", "first_unit": 0, "end_unit": 6}]}]})", "window is missing"},
      {stages(R"({"worker": "c", "first_unit": 0, "end_unit": 6})"), "there is no worker c in this fleet"},
      {stages(R"({"worker": "a", "end_unit": 6})"), "clusters[0].stages[0]: first_unit is missing"},
      {stages(R"({"worker": "a", "first_unit": 0, "end_unit": 2})"), "does not cover the model"},
      {stages(R"({"worker": "a", "first_unit": 0, "end_unit": 1})"), "no such cut"},
  };
  for (const auto& [plan, message] : wrong) {
    const ProgramResult result = judge(plan);
    EXPECT_EQ(result.exit_code, 64) << plan;
    EXPECT_TRUE(absl::StrContains(result.error, message)) << result.error;
  }
  EXPECT_EQ(RunProgram("stagecoach", {"simulate", fleet, run, "--plan", folder.File("none")}).exit_code, 64);
}

}  // namespace
}  // namespace stagecoach
