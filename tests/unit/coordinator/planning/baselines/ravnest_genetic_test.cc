// What is known of Ravnest's genetic algorithm: with its authors' instance, and where it finds nothing.
#include "coordinator/domain/planning/baselines/ravnest_genetic.h"

#include <memory>
#include <set>

#include "common/rng_draws.h"
#include "gtest/gtest.h"
#include "tests/support/fleet_families.h"

namespace stagecoach {
namespace {

// 20 nodes of 2, 4, 8 or 16 GB and 1 to 40 Mbit/s.
std::vector<RavnestNode> AuthorsNodes(uint64_t seed) {
  RngDraws draws(seed, RngPurpose::kTest);
  std::vector<RavnestNode> nodes;
  for (int i = 0; i < 20; ++i) nodes.push_back({1000.0 * (2 << draws.Below(4)), 1.0 + draws.Below(40)});
  return nodes;
}

TEST(RavnestPenaltyTest, Formula_IsMissingMemoryAndSpreadOfSums) {
  const std::vector<RavnestNode> nodes = {{1000, 30}, {2000, 7}, {500, 100}};
  // Sums of floor(RAM / bandwidth): 33 + 285 and 5.
  EXPECT_EQ(RavnestPenalty(nodes, 700, {1, 1, 4}), 100 * 200 + (33 + 285) - 5);
  EXPECT_EQ(RavnestPenalty(nodes, 400, {0, 1, 2}), 285 - 5);
}

TEST(RavnestGeneticTest, OneClusterOfEverything_IsAGlobalOptimum) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(RavnestPenalty(AuthorsNodes(seed), 25'000, std::vector<uint8_t>(20, 3)), 0) << seed;
  }
}

TEST(RavnestGeneticTest, AuthorsInstance_IsSolvedWithLittleMemoryMissing) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const std::vector<RavnestNode> nodes = AuthorsNodes(seed);
    const auto genes = EvolveRavnestClusters(nodes, 25'000, kRavnestClusters, seed);
    ASSERT_TRUE(genes.has_value());
    // A gigabyte missing in one cluster is a penalty of 100,000.
    EXPECT_LT(RavnestPenalty(nodes, 25'000, *genes), 100'000) << seed;
    EXPECT_GE(std::set<uint8_t>(genes->begin(), genes->end()).size(), 2u);
    EXPECT_EQ(EvolveRavnestClusters(nodes, 25'000, kRavnestClusters, seed), genes);
  }
}

TEST(RavnestGeneticTest, TenGigabytesMissing_IsNoResult) {
  const std::vector<RavnestNode> nodes(20, RavnestNode{2000, 10});
  EXPECT_EQ(EvolveRavnestClusters(nodes, 60'000, kRavnestClusters, 1), std::nullopt);
  EXPECT_EQ(EvolveRavnestClusters(nodes, 50'000, kRavnestClusters, 1), std::nullopt);
  // One cluster of all would lack only 5 GB, but two of them lack 50, and selection does not lead there.
  EXPECT_LT(RavnestPenalty(nodes, 45'000, std::vector<uint8_t>(20, 0)), 1'000'000);
  EXPECT_EQ(EvolveRavnestClusters(nodes, 45'000, kRavnestClusters, 1), std::nullopt);
}

TEST(RavnestGeneticTest, SingleNode_IsOneCluster) {
  EXPECT_EQ(EvolveRavnestClusters({{8000, 10}}, 8000, kRavnestClusters, 1), (std::vector<uint8_t>{0}));
  EXPECT_EQ(EvolveRavnestClusters({{8000, 10}}, 18'000, kRavnestClusters, 1), std::nullopt);
}

TEST(RavnestDivisionTest, LinksOfPairs_DoNotMatter) {
  const PlanModel model = testing::SyntheticModel();
  Fleet fleet = testing::FamilyFleet(testing::FleetFamily::kMixed, 12, 1);
  const auto divide = [&] {
    const CostModel costs(model, fleet, std::make_shared<const LinkCosts>(fleet, model.frame_bytes), {16, 1, 0});
    return RavnestDivision(costs, RavnestCuts::kByMemory, 0, 1);
  };
  const Division before = divide();
  for (auto& [pair, link] : fleet.regions) link = {5, 1000, true};
  const Division after = divide();
  ASSERT_FALSE(before.empty());
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].workers, after[i].workers);
    EXPECT_EQ(before[i].points, after[i].points);
  }
}

}  // namespace
}  // namespace stagecoach
