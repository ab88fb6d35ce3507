#include "coordinator/domain/stage_partition.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/counter_rng.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

PartitionWorker AWorker(const std::string& name, std::vector<double> seconds, uint64_t limit = 0) {
  PartitionWorker worker;
  worker.name = name;
  worker.unit_bytes.assign(seconds.size(), 10);
  worker.unit_seconds = std::move(seconds);
  worker.memory_limit_bytes = limit;
  return worker;
}

struct Best {
  double max_seconds = 1e300, squares = 1e300;
  std::vector<uint32_t> cuts;
};

// Tries every set of cuts, in ascending order, and keeps the first best one.
Best BruteForce(const PartitionProblem& problem) {
  Best best;
  std::vector<uint32_t> cuts;
  const uint32_t units = static_cast<uint32_t>(problem.cut_allowed.size());
  const std::function<void(uint32_t)> extend = [&](uint32_t from) {
    if (cuts.size() + 1 == problem.workers.size()) {
      const auto partition = EvaluateCuts(problem, cuts);
      if (!partition.ok()) return;
      double squares = 0;
      for (const double seconds : partition->stage_seconds) squares += seconds * seconds;
      if (partition->max_stage_seconds < best.max_seconds ||
          (partition->max_stage_seconds == best.max_seconds && squares < best.squares)) {
        best = {partition->max_stage_seconds, squares, cuts};
      }
      return;
    }
    for (uint32_t u = from; u < units; ++u) {
      cuts.push_back(u);
      extend(u + 1);
      cuts.pop_back();
    }
  };
  extend(1);
  return best;
}

TEST(StagePartitionTest, RandomSmallCases_EqualBruteForce) {
  const uint64_t seed = 20240601;
  RecordProperty("seed", static_cast<int>(seed));
  const CounterRng rng(seed, RngPurpose::kTest);
  uint64_t next = 0;
  int solved = 0, infeasible = 0;
  for (int round = 0; round < 400; ++round) {
    PartitionProblem problem;
    const uint32_t units = 3 + rng.Word(next++) % 7;
    const uint32_t workers = 1 + rng.Word(next++) % 4;
    for (uint32_t u = 0; u < units; ++u) problem.cut_allowed.push_back(u > 0 && rng.Word(next++) % 5 != 0);
    if (MaxStages(problem.cut_allowed) < workers) continue;
    for (uint32_t w = 0; w < workers; ++w) {
      std::vector<double> seconds;  // integers: sums are exact, so ties are exact in both
      for (uint32_t u = 0; u < units; ++u) seconds.push_back(1 + rng.Word(next++) % 4);
      problem.workers.push_back(AWorker(absl::StrCat("w", w), seconds, rng.Word(next++) % 2 ? 0 : 10 * units / 2 + 5));
    }
    const Best best = BruteForce(problem);
    const auto partition = PartitionStages(problem);
    if (best.max_seconds == 1e300) {
      EXPECT_EQ(partition.status().code(), absl::StatusCode::kResourceExhausted);
      ++infeasible;
      continue;
    }
    ASSERT_TRUE(partition.ok()) << partition.status();
    EXPECT_EQ(partition->max_stage_seconds, best.max_seconds) << "round " << round;
    EXPECT_EQ(partition->cuts, best.cuts) << "round " << round;
    ++solved;
  }
  EXPECT_GT(solved, 200);
  EXPECT_GT(infeasible, 5);
}

TEST(StagePartitionTest, SlowWorker_GetsLess) {
  PartitionProblem problem;
  problem.cut_allowed.assign(9, true);
  problem.workers = {AWorker("fast", std::vector<double>(9, 1)), AWorker("slow", std::vector<double>(9, 2))};
  const auto partition = PartitionStages(problem);
  ASSERT_TRUE(partition.ok());
  EXPECT_EQ(partition->cuts, std::vector<uint32_t>{6});
  EXPECT_EQ(partition->max_stage_seconds, 6);
}

TEST(StagePartitionTest, ForbiddenCuts_AreNotUsed) {
  PartitionProblem problem;
  problem.cut_allowed = {false, false, true, false, false, false};
  problem.workers = {AWorker("a", std::vector<double>(6, 1)), AWorker("b", std::vector<double>(6, 1))};
  EXPECT_EQ(PartitionStages(problem)->cuts, std::vector<uint32_t>{2});
  problem.workers.push_back(AWorker("c", std::vector<double>(6, 1)));
  EXPECT_EQ(PartitionStages(problem).status().message(),
            "the model can be cut into 2 stages at most, there are 3 workers");
}

TEST(StagePartitionTest, TooLittleMemory_SaysWhoHasHowMuch) {
  PartitionProblem problem;
  problem.cut_allowed.assign(4, true);
  problem.workers = {AWorker("a", std::vector<double>(4, 1), 500000000)};
  problem.workers[0].unit_bytes.assign(4, 1000000000);
  const auto partition = PartitionStages(problem);
  EXPECT_EQ(partition.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(partition.status().message(),
            "the model does not fit: weights, gradients and optimizer state need 4 GB, the 1 workers have 0.5 GB in "
            "all (a has "
            "0.5 GB); add workers or memory, or use a smaller model");
}

TEST(StagePartitionTest, FixedCuts_NeedAsManyWorkers) {
  PartitionProblem problem;
  problem.cut_allowed.assign(6, true);
  problem.workers = {AWorker("a", std::vector<double>(6, 1)), AWorker("b", std::vector<double>(6, 1))};
  EXPECT_EQ(EvaluateCuts(problem, {4})->stage_seconds, (std::vector<double>{4, 2}));
  EXPECT_EQ(EvaluateCuts(problem, {2, 4}).status().message(),
            "the record has 3 stages, there are 2 workers; use as many workers as stages");
}

}  // namespace
}  // namespace stagecoach
