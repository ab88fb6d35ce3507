// The workers and links that `train --links` emulates.
#include "cli/train/local_network.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

constexpr char kTwoSites[] = R"(
workers:
  - {name: north, count: 2, region: north, memory_gib: 0.5, up_mbit: 100, up_mbit_to: 200}
  - {name: south, region: south, down_mbit: 50}
regions:
  - {from: north, to: south, rtt_ms: 80, mbit: 4}
  - {from: south, to: north, rtt_ms: 80, mbit: 2}
links:
  - {from: north-0, to: north-1, rtt_ms: 0.5}
)";

const LocalLink& Link(const LocalNetwork& network, uint32_t from, uint32_t to) {
  for (const LocalLink& link : network.links) {
    if (link.from == from && link.to == to) return link;
  }
  ADD_FAILURE() << "no link from " << from << " to " << to;
  return network.links.front();
}

TEST(LocalNetworkTest, Profile_IsOfEveryPair) {
  const auto network = ReadLocalNetwork("80mbit/50ms", 0);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->workers.size(), 4u);
  EXPECT_EQ(network->workers[3].name, "w3");
  EXPECT_EQ(network->links.size(), 12u);
  EXPECT_EQ(Link(*network, 2, 1).profile, "80mbit/50ms");
  EXPECT_TRUE(ReadLocalNetwork("none", 8)->links.empty());
}

TEST(LocalNetworkTest, FleetFile_GivesNamesLimitsAndTheLinksOfBothWays) {
  testing::TemporaryFolder folder;
  const std::string path = folder.Write("fleet.yaml", kTwoSites);
  const auto network = ReadLocalNetwork(path, 0);
  ASSERT_TRUE(network.ok()) << network.status();
  ASSERT_EQ(network->workers.size(), 3u);
  EXPECT_EQ(network->workers[1].name, "north-1");
  EXPECT_DOUBLE_EQ(network->workers[1].memory_gib, 0.5);
  EXPECT_DOUBLE_EQ(network->workers[0].up_mbit, 100);
  EXPECT_DOUBLE_EQ(network->workers[1].up_mbit, 200);
  EXPECT_DOUBLE_EQ(network->workers[2].down_mbit, 50);
  EXPECT_EQ(network->workers[2].memory_gib, 0);
  EXPECT_EQ(Link(*network, 0, 2).profile, "4mbit/80ms");
  EXPECT_EQ(Link(*network, 2, 0).profile, "2mbit/80ms");
  EXPECT_EQ(Link(*network, 1, 0).profile, "100000mbit/0.5ms");
  EXPECT_EQ(ReadLocalNetwork(path, 2)->workers.size(), 2u);
}

TEST(LocalNetworkTest, WhatCannotBeEmulated_IsRefusedWithTheReason) {
  testing::TemporaryFolder folder;
  const auto refusal = [&](const std::string& yaml, uint32_t workers) {
    const auto network = ReadLocalNetwork(folder.Write("fleet.yaml", yaml), workers);
    EXPECT_TRUE(absl::IsInvalidArgument(network.status())) << network.status();
    return std::string(network.status().message());
  };
  const std::string four = refusal(kTwoSites, 4);
  EXPECT_TRUE(absl::StrContains(four, "has 3 workers, not 4")) << four;
  const std::string apart = refusal(absl::StrCat(kTwoSites, "  - {from: north-1, to: south, usable: false}\n"), 0);
  EXPECT_TRUE(absl::StrContains(apart, "north-1 to south has usable: false")) << apart;
  const std::string deaf = refusal("workers:\n  - {name: a, listens: false}\n", 0);
  EXPECT_TRUE(absl::StrContains(deaf, "a has listens: false")) << deaf;
  const std::string far =
      refusal("workers:\n  - {name: a, count: 2}\nlinks:\n  - {from: a-0, to: a-1, rtt_ms: 20000}\n", 0);
  EXPECT_TRUE(absl::StrContains(far, "0ms..10s")) << far;
  const std::string crowd = refusal("workers:\n  - {name: a, count: 257}\n", 0);
  EXPECT_TRUE(absl::StrContains(crowd, "at most 256")) << crowd;
  EXPECT_TRUE(absl::IsNotFound(ReadLocalNetwork(folder.File("none.yaml"), 0).status()));
  const auto typo = ReadLocalNetwork("fleet.yml.gz", 0);
  EXPECT_TRUE(absl::StrContains(typo.status().message(), "--links")) << typo.status();
}

}  // namespace
}  // namespace stagecoach
