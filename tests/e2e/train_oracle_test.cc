// Real processes over real gRPC end with the bits of the single-process reference, whatever the schedule, the cut, the
// wire format and the links.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/train_run.h"

namespace stagecoach::testing {
namespace {

struct OracleCase {
  std::string name;
  int workers;
  TinySpec spec;
};

void PrintTo(const OracleCase& test, std::ostream* out) { *out << test.name; }

class TrainOracleTest : public ::testing::TestWithParam<OracleCase> {};

TEST_P(TrainOracleTest, WeightsLossesAndEvaluations_AreTheOracles) {
  const OracleCase& test = GetParam();
  TemporaryFolder folder;
  TrainRun run(folder, "run", test.spec);
  const nlohmann::json report = run.Train(test.workers);
  // PipeDream updates after every microbatch.
  const int updates = test.spec.schedule == "pipedream" ? test.spec.steps * test.spec.microbatches : test.spec.steps;
  ASSERT_EQ(report.value("steps", 0), updates);
  ExpectSameBits(report, run.Oracle());
  const bool fixed = test.spec.j != "auto" && test.spec.schedule == "fd-2bw";
  if (fixed) {
    EXPECT_EQ(absl::StrCat(report["j"].get<int>()), test.spec.j);
  }
}

OracleCase Case(std::string name, int workers, std::string j, std::string wire, bool subspace) {
  OracleCase test{std::move(name), workers, {}};
  test.spec.j = std::move(j);
  test.spec.wire = std::move(wire);
  test.spec.subspace = subspace;
  return test;
}

OracleCase Baseline(std::string schedule, int workers) {
  OracleCase test{schedule, workers, {}};
  test.spec.schedule = std::move(schedule);
  test.spec.steps = 30;
  return test;
}

std::vector<OracleCase> Cases() {
  std::vector<OracleCase> cases = {Case("OneStageSync", 1, "0", "fp32", false),
                                   Case("OneStageDelayed", 1, "4", "fp32", true),
                                   Case("TwoStagesJIsM", 2, "4", "int8", true),
                                   Case("TwoStagesJAboveM", 2, "7", "fp32", false),
                                   Case("ThreeStagesJIsN", 3, "auto", "fp32", true),
                                   Case("ThreeStagesJAboveM", 3, "6", "int8", true),
                                   Case("FourStagesSync", 4, "0", "int8", false),
                                   Case("FourStagesJIsN", 4, "auto", "int8", true),
                                   Case("FourStagesJIsM", 4, "4", "fp32", false),
                                   Case("FourStagesJAboveM", 4, "10", "fp32", true),
                                   Baseline("sync-1f1b", 3),
                                   Baseline("gpipe", 3),
                                   Baseline("2bw", 3),
                                   Baseline("pipedream", 3)};
  cases[1].spec.optimizer = "muon";
  cases[2].spec.architecture = "gpt2";
  cases[3].spec.dropout = 0.1;
  cases[3].spec.evaluation_every = 20;
  cases[5].spec.dropout = 0.1;  // O2: int8, stochastic rounding and dropout
  cases[5].spec.clip_norm = 0.5;
  cases[7].spec.optimizer = "muon";
  cases[8].spec.architecture = "gpt2";
  cases[8].spec.recompute = "off";
  cases[9].spec.recompute = "on";
  cases[9].spec.evaluation_every = 30;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(O1, TrainOracleTest, ::testing::ValuesIn(Cases()), [](const auto& instance) {
  std::string name = instance.param.name;
  std::erase_if(name, [](char c) { return c == '-'; });
  return name;
});

TEST(TrainLinksTest, ThreeLinkProfiles_GiveOneHash) {
  TemporaryFolder folder;
  TinySpec spec;
  spec.wire = "int8";
  spec.microbatches = 8;
  spec.j = "16";  // two steps: on the slowest link the run would otherwise wait for the loop in every step
  TrainRun reference(folder, "reference", spec);
  const nlohmann::json expected = reference.Train(4);
  ExpectSameBits(expected, reference.Oracle());
  for (const std::string links : {"10mbit/150ms", "80mbit/50ms/10ms", "1000mbit/10ms"}) {
    SCOPED_TRACE(links);
    std::string name = links;
    for (char& c : name) c = c == '/' ? '-' : c;
    TrainRun run(folder, name, spec);
    ExpectSameBits(run.Train(4, {"--links", links, "--like", reference.dir()}), expected);
  }
}

TEST(TrainWireTest, BytesPerToken_AreTheFormulas) {
  TemporaryFolder folder;
  TinySpec spec;
  spec.wire = "int8";
  spec.width = 64;
  spec.rank = 32;
  spec.sequences = 8;
  spec.tokens = 64;
  spec.steps = 20;
  spec.j = "4";
  spec.evaluation_microbatches = 0;
  TrainRun run(folder, "run", spec);
  const nlohmann::json report = run.Train(3);
  const double formula = 32 + 2;  // k bytes and one bf16 scale a group of 32
  ASSERT_EQ(report["wire_bytes_per_token"].size(), 2u);
  for (const nlohmann::json& boundary : report["wire_bytes_per_token"]) {
    EXPECT_NEAR(boundary["forward"].get<double>(), formula, 0.03 * formula) << boundary;
    EXPECT_NEAR(boundary["backward"].get<double>(), formula, 0.03 * formula) << boundary;
  }
  EXPECT_EQ(report["coordinator_tensor_bytes"], 0);
}

TEST(TrainReportTest, StalenessHistogram_IsTheRules) {
  TemporaryFolder folder;
  TinySpec spec;
  spec.steps = 20;
  spec.j = "6";  // M = 4: tau = 2, two microbatches of a step at lag 2, two at lag 1
  TrainRun run(folder, "run", spec);
  const nlohmann::json report = run.Train(2);
  // The first two steps are synchronous (a tenth of the schedule); then the table's J = 6 holds.
  const nlohmann::json& histogram = report["staleness_histogram"];
  int total = 0;
  for (const auto& [lag, microbatches] : histogram.items()) {
    total += microbatches.get<int>();
    EXPECT_LE(std::stoi(lag), 2);
  }
  EXPECT_EQ(total, 20 * 4);
  EXPECT_EQ(histogram["2"], (20 - 3) * 2);
}

}  // namespace
}  // namespace stagecoach::testing
