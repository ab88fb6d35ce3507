// Rounds of clusters that are cut differently, in virtual time: the result, its bits, bytes, deaths (A1, A2, A4, A6,
// A7).
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/sim_averaging.h"

namespace stagecoach::testing {
namespace {

constexpr uint64_t kSeed = 20261204;
constexpr ExchangeMethod kMethods[] = {ExchangeMethod::kOneShot, ExchangeMethod::kRing, ExchangeMethod::kDirect};

struct FleetCase {
  std::vector<StageCuts> cuts;
  std::vector<uint64_t> units, tokens;
};

FleetCase RandomCase(uint64_t number, uint32_t clusters, uint32_t largest_unit = 1500) {
  const CounterRng rng(kSeed, RngPurpose::kTest, number);
  uint64_t word = 0;
  FleetCase result;
  const uint32_t units = 2 + rng.Word(word++) % 6;
  for (uint32_t u = 0; u < units; ++u) result.units.push_back(1 + rng.Word(word++) % largest_unit);
  for (uint32_t c = 0; c < clusters; ++c) {
    StageCuts cuts = {0};
    for (uint32_t u = 1; u < units; ++u) {
      if (rng.Word(word++) % 3 == 0) cuts.push_back(u);
    }
    cuts.push_back(units);
    result.cuts.push_back(cuts);
    result.tokens.push_back(1 + rng.Word(word++) % 1000);
  }
  return result;
}

std::vector<double> ExactMean(SimFleet* fleet, const std::vector<uint64_t>& tokens) {
  std::vector<double> mean(fleet->weights(0).size());
  double sum = 0;
  for (uint32_t c = 0; c < fleet->clusters(); ++c) sum += fleet->alive(c) ? static_cast<double>(tokens[c]) : 0;
  for (uint32_t c = 0; c < fleet->clusters(); ++c) {
    if (!fleet->alive(c)) continue;
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(tokens[c]) / sum * static_cast<double>(fleet->weights(c)[i]);
    }
  }
  return mean;
}

double Distance(const std::vector<float>& values, const std::vector<double>& exact) {
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::fabs(values[i] - exact[i]));
  return largest;
}

TEST(AveragingRoundTest, RandomCutsAndWeights_GiveTheExactMean) {
  for (uint64_t number = 0; number < 120; ++number) {
    const uint32_t clusters = 1 + number % 8;
    const FleetCase c = RandomCase(number, clusters);
    SCOPED_TRACE(number);
    SimFleet fleet(kSeed + number, c.cuts, c.units);
    fleet.Train(0.1f);
    SimRoundOptions options;
    options.method = kMethods[number % 3];
    const SimRoundResult result = fleet.Round(c.tokens, options);
    ASSERT_TRUE(result.committed);
    EXPECT_EQ(result.hashes.size(), result.shards);
    for (uint32_t cluster = 0; cluster < clusters; ++cluster) {
      EXPECT_LE(Distance(fleet.Theta(cluster), ExactMean(&fleet, c.tokens)), 1e-6);
    }
  }
}

TEST(AveragingRoundTest, BytesOfAWorker_AreThoseOfTheFormula) {
  for (uint32_t clusters = 2; clusters <= 8; ++clusters) {
    for (const ExchangeMethod method : kMethods) {
      SimFleet fleet(kSeed, std::vector<StageCuts>(clusters, {0, 1, 2}), {64000, 32000});
      SimRoundOptions options;
      options.method = method;
      options.piece_parameters = 1024;
      const SimRoundResult result = fleet.Round(std::vector<uint64_t>(clusters, 100), options);
      ASSERT_TRUE(result.committed);
      for (const auto& bytes : result.bytes) {
        for (const auto& [shard, sent] : bytes) {
          const double copies = method == ExchangeMethod::kDirect ? clusters - 1 : 2.0 * (clusters - 1) / clusters;
          const double expected = copies * 4 * static_cast<double>(fleet.parameters(shard));
          EXPECT_NEAR(static_cast<double>(sent) / expected, 1, 0.02) << "clusters=" << clusters;
        }
      }
    }
  }
}

TEST(AveragingRoundTest, EveryCodecAndOptimizer_SameBitsEverywhereRoundAfterRound) {
  uint64_t number = 1000;
  for (const AveragingCodec codec :
       {AveragingCodec::kFp32, AveragingCodec::kBf16, AveragingCodec::kInt8, AveragingCodec::kInt4}) {
    for (const OuterOptimizer& outer : {OuterOptimizer{}, OuterOptimizer{OuterOptimizer::Kind::kNesterov, 0.7f, 0.9f},
                                        OuterOptimizer{OuterOptimizer::Kind::kSgd, 0.5f, 0.5f}}) {
      ++number;
      const FleetCase c = RandomCase(number, 2 + number % 4);
      SCOPED_TRACE(number);
      SimFleet fleet(kSeed + number, c.cuts, c.units);
      SimRoundOptions options;
      options.codec = codec;
      options.outer = outer;
      options.error_feedback = codec == AveragingCodec::kInt4;
      options.method = number % 2 == 0 ? ExchangeMethod::kOneShot : ExchangeMethod::kDirect;
      for (int round = 0; round < 4; ++round) {
        fleet.Train(0.01f);
        const SimRoundResult result = fleet.Round(c.tokens, options);
        ASSERT_TRUE(result.committed);
        EXPECT_EQ(result.hashes.size(), result.shards);
        for (uint32_t cluster = 1; cluster < fleet.clusters(); ++cluster) {
          EXPECT_EQ(fleet.Theta(cluster), fleet.Theta(0));
        }
      }
    }
  }
}

TEST(AveragingRoundTest, Int8Mean_IsWithinTwoRoundings) {
  const FleetCase c = RandomCase(2000, 4);
  SimFleet fleet(kSeed, c.cuts, c.units);
  fleet.Train(0.01f);
  SimRoundOptions options;
  options.codec = AveragingCodec::kInt8;
  ASSERT_TRUE(fleet.Round(c.tokens, options).committed);
  // Differences are at most 0.01; each of the two roundings is at most half of 1/127 of that (scale rounded up).
  EXPECT_LE(Distance(fleet.Theta(0), ExactMean(&fleet, c.tokens)), 1.01 * 0.01 / 127 + 1e-6);
}

TEST(AveragingRoundTest, Direct_HasTheBitsOfOneShotInFp32AndOneRoundingInInt8) {
  for (const AveragingCodec codec : {AveragingCodec::kFp32, AveragingCodec::kInt8}) {
    std::vector<float> thetas[2];
    for (const bool direct : {false, true}) {
      const FleetCase c = RandomCase(2500, 3);
      SimFleet fleet(kSeed, c.cuts, c.units);
      fleet.Train(0.01f);
      SimRoundOptions options;
      options.codec = codec;
      options.method = direct ? ExchangeMethod::kDirect : ExchangeMethod::kOneShot;
      ASSERT_TRUE(fleet.Round(c.tokens, options).committed);
      thetas[direct] = fleet.Theta(0);
      if (codec == AveragingCodec::kInt8 && direct) {
        EXPECT_LE(Distance(thetas[1], ExactMean(&fleet, c.tokens)), 1.01 * 0.01 / 127 / 2 + 1e-6);
      }
    }
    EXPECT_EQ(thetas[0] == thetas[1], codec == AveragingCodec::kFp32);
  }
}

TEST(AveragingRoundTest, ErrorFeedback_LosesNothingOverRounds) {
  // The weights stay where they are, apart from theta: without feedback what rounds to 0 never arrives.
  SimRoundOptions options;
  options.codec = AveragingCodec::kInt4;
  for (const ExchangeMethod method : {ExchangeMethod::kOneShot, ExchangeMethod::kDirect}) {
    options.method = method;
    double distance[2];
    for (const bool feedback : {false, true}) {
      SimFleet fleet(kSeed, {{0, 1}, {0, 1}}, {1280});
      const std::vector<float> start = fleet.Theta(0);
      options.error_feedback = feedback;
      options.outer = {OuterOptimizer::Kind::kSgd, 1.0f, 0.0f};
      std::vector<double> wanted(start.begin(), start.end());
      for (int round = 0; round < 20; ++round) {
        for (uint32_t cluster = 0; cluster < 2; ++cluster) {
          std::vector<float>& weights = fleet.weights(cluster);
          weights = fleet.Theta(cluster);
          for (size_t i = 0; i < weights.size(); ++i) weights[i] -= i % 64 == 0 ? 0.07f : 0.001f;
        }
        for (size_t i = 0; i < wanted.size(); ++i) wanted[i] -= i % 64 == 0 ? 0.07 : 0.001;
        ASSERT_TRUE(fleet.Round({1, 1}, options).committed);
      }
      distance[feedback] = Distance(fleet.Theta(0), wanted);
    }
    EXPECT_NEAR(distance[0], 0.02, 1e-3);  // 20 rounds of 0.001 below half a scale of 0.01
    EXPECT_LE(distance[1], 0.011);         // at most what is still in the residuals
  }
}

TEST(AveragingRoundTest, OneCluster_IsANoOpWithoutBytes) {
  SimFleet fleet(kSeed, {{0, 2}}, {100, 100});
  fleet.Train(0.1f);
  const SimRoundResult result = fleet.Round({77}, {});
  ASSERT_TRUE(result.committed);
  EXPECT_EQ(fleet.Theta(0), fleet.weights(0));
  EXPECT_EQ(result.events, 0u);
  for (const auto& [shard, sent] : result.bytes[0]) EXPECT_EQ(sent, 0u);
}

TEST(AveragingRoundTest, Weights_FollowSamplesAndZeroHasNoEffect) {
  for (const AveragingCodec codec : {AveragingCodec::kFp32, AveragingCodec::kInt8}) {
    for (const ExchangeMethod method : kMethods) {
      if (codec == AveragingCodec::kInt8 && method == ExchangeMethod::kRing) continue;
      SimRoundOptions options;
      options.codec = codec;
      options.method = method;
      std::vector<float> thetas[2];
      for (const bool strange : {false, true}) {
        SimFleet fleet(kSeed, {{0, 1}, {0, 1}, {0, 1}}, {1000});
        fleet.Train(0.1f);
        if (strange) fleet.weights(2).assign(1000, 1e30f);
        const std::vector<uint64_t> tokens = {300, 100, 0};
        ASSERT_TRUE(fleet.Round(tokens, options).committed);
        thetas[strange] = fleet.Theta(2);
        if (codec == AveragingCodec::kFp32) {
          for (size_t i = 0; i < 1000; ++i) {
            const double a = fleet.weights(0)[i], b = fleet.weights(1)[i];
            ASSERT_NEAR(thetas[strange][i], (3 * a + b) / 4, 1e-6);
          }
        }
      }
      EXPECT_EQ(thetas[0], thetas[1]);
    }
  }
}

TEST(AveragingRoundTest, AnyOwnerDiesAtAnyTime_SurvivorsRetryAndNothingIsHalfApplied) {
  for (uint64_t number = 0; number < 150; ++number) {
    const uint32_t clusters = 2 + number % 4;
    const FleetCase c = RandomCase(3000 + number, clusters, 600);
    SCOPED_TRACE(number);
    SimRoundOptions options;
    options.codec = number % 2 == 0 ? AveragingCodec::kInt8 : AveragingCodec::kFp32;
    options.method = number % 4 == 1  ? ExchangeMethod::kRing
                     : number % 4 > 1 ? ExchangeMethod::kDirect
                                      : ExchangeMethod::kOneShot;
    // How many events does the round take without a death? Then die at one of them.
    SimFleet undisturbed(kSeed + number, c.cuts, c.units);
    undisturbed.Train(0.01f);
    const uint64_t events = undisturbed.Round(c.tokens, options).events;
    SimFleet fleet(kSeed + number, c.cuts, c.units);
    const std::vector<float> before = fleet.Theta(0);
    fleet.Train(0.01f);
    options.victim = number % clusters;
    options.kill_at_event = CounterRng(kSeed, RngPurpose::kTest, number).Word(0) % (events + 1);
    const SimRoundResult result = fleet.Round(c.tokens, options);
    ASSERT_TRUE(result.committed);
    EXPECT_LE(result.attempts, 2u);
    EXPECT_EQ(result.hashes.size(), result.shards);
    const double tolerance = options.codec == AveragingCodec::kFp32 ? 1e-6 : 2e-4;
    for (uint32_t cluster = 0; cluster < clusters; ++cluster) {
      if (fleet.alive(cluster)) {
        EXPECT_LE(Distance(fleet.Theta(cluster), ExactMean(&fleet, c.tokens)), tolerance);
      } else {
        EXPECT_EQ(fleet.Theta(cluster), before);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
