#include "tests/support/fleet_families.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "coordinator/domain/planning/cost_model.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using testing::AllFleetFamilies;
using testing::FamilyFleet;
using testing::FamilyName;
using testing::FleetFamily;
using testing::SyntheticModel;

TEST(FleetFamiliesTest, SameSeed_IsTheSameFleetAndAnotherSeedIsNot) {
  for (const FleetFamily family : AllFleetFamilies()) {
    SCOPED_TRACE(FamilyName(family));
    const Fleet fleet = FamilyFleet(family, 24, 1), again = FamilyFleet(family, 24, 1);
    ASSERT_EQ(fleet.workers.size(), 24u);
    bool differs = false;
    const Fleet other = FamilyFleet(family, 24, 2);
    std::set<std::string> names;
    for (size_t i = 0; i < fleet.workers.size(); ++i) {
      names.insert(fleet.workers[i].name);
      EXPECT_EQ(fleet.workers[i].region, again.workers[i].region);
      EXPECT_EQ(fleet.workers[i].up_bytes_per_second, again.workers[i].up_bytes_per_second);
      differs |= fleet.workers[i].region != other.workers[i].region ||
                 fleet.workers[i].memory_bytes != other.workers[i].memory_bytes ||
                 fleet.workers[i].up_bytes_per_second != other.workers[i].up_bytes_per_second;
    }
    EXPECT_EQ(names.size(), 24u);
    EXPECT_TRUE(differs);
  }
}

TEST(FleetFamiliesTest, EveryTwoRegions_HaveALink) {
  for (const FleetFamily family : AllFleetFamilies()) {
    SCOPED_TRACE(FamilyName(family));
    const Fleet fleet = FamilyFleet(family, 64, 3);
    for (const FleetWorker& a : fleet.workers) {
      for (const FleetWorker& b : fleet.workers) EXPECT_TRUE(fleet.regions.contains({a.region, b.region}));
    }
  }
}

TEST(FleetFamiliesTest, Families_HaveWhatTheyAreNamedFor) {
  const auto count = [](const Fleet& fleet, const auto& is) {
    return std::count_if(fleet.workers.begin(), fleet.workers.end(), is);
  };
  const double slow = testing::kUnitSeconds.forward * 1.9;
  EXPECT_EQ(
      count(FamilyFleet(FleetFamily::kFewSlow, 22, 1), [&](const FleetWorker& w) { return w.kinds[1].forward > slow; }),
      2);
  EXPECT_EQ(count(FamilyFleet(FleetFamily::kOneBadApple, 12, 1),
                  [&](const FleetWorker& w) { return w.kinds[1].forward > slow; }),
            1);
  EXPECT_EQ(count(FamilyFleet(FleetFamily::kHalfBehindNat, 12, 1), [](const FleetWorker& w) { return !w.listens; }), 6);
  EXPECT_EQ(
      count(FamilyFleet(FleetFamily::kDtfmCase4, 64, 1), [](const FleetWorker& w) { return w.region == "Tokyo"; }), 8);
  EXPECT_EQ(count(FamilyFleet(FleetFamily::kDtfmCase2, 64, 1), [](const FleetWorker& w) { return w.region == "Ohio"; }),
            32);
}

TEST(SyntheticModelTest, Parameters_NeedTheirBytesWithWeightsOneStepOld) {
  const PlanModel model = SyntheticModel();
  const Fleet fleet = FamilyFleet(FleetFamily::kMixed, 4, 1);
  const CostModel costs(model, fleet, std::make_shared<const LinkCosts>(fleet, model.frame_bytes), {16, 1, 0});
  uint64_t stages = 0;
  for (uint32_t u = 0; u < costs.last_point(); ++u)
    stages += costs.MemoryBytes(u, u + 1) - FixedBytes(MemoryRuleOf(model, 16), 40'000'000);
  EXPECT_NEAR(static_cast<double>(stages), 5.6e9, 1e6);
}

}  // namespace
}  // namespace stagecoach
