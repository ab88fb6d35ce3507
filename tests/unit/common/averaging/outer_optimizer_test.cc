#include "common/averaging/outer_optimizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/averaging/apply_rule.h"
#include "common/averaging/contribution_weights.h"

namespace stagecoach {
namespace {

using Kind = OuterOptimizer::Kind;

TEST(OuterOptimizerTest, Defaults_FollowStepsBetweenRoundsAndRounds) {
  EXPECT_EQ(DefaultOuterOptimizer(100, 50).kind, Kind::kNesterov);
  EXPECT_FLOAT_EQ(DefaultOuterOptimizer(100, 50).eta, 0.7f);
  EXPECT_FLOAT_EQ(DefaultOuterOptimizer(100, 50).mu, 0.9f);
  EXPECT_FLOAT_EQ(DefaultOuterOptimizer(30, 50).eta, 0.4f);
  EXPECT_EQ(DefaultOuterOptimizer(29, 1000).kind, Kind::kPlainMean);
  EXPECT_EQ(DefaultOuterOptimizer(500, 49).kind, Kind::kPlainMean);
}

TEST(OuterOptimizerTest, MomentumThatDoesNotSettle_IsWarnedOf) {
  EXPECT_NE(OuterOptimizerWarning({Kind::kNesterov, 0.7f, 0.9f}, 50), "");
  EXPECT_EQ(OuterOptimizerWarning({Kind::kNesterov, 0.7f, 0.9f}, 200), "");
  EXPECT_EQ(OuterOptimizerWarning({}, 1), "");
}

TEST(OuterOptimizerTest, Steps_AreTheFormulas) {
  std::vector<float> theta = {1, 2}, v = {0.5f, 0};
  OuterStep({Kind::kNesterov, 0.5f, 0.5f}, {1.0f, -1.0f}, absl::MakeSpan(theta), absl::MakeSpan(v));
  EXPECT_FLOAT_EQ(v[0], 1.25f);
  EXPECT_FLOAT_EQ(theta[0], 1 - 0.5f * (1 + 0.5f * 1.25f));
  EXPECT_FLOAT_EQ(theta[1], 2 - 0.5f * (-1 - 0.5f));
  OuterStep({Kind::kSgd, 2.0f, 0.5f}, {1.0f, 0.0f}, absl::MakeSpan(theta), absl::MakeSpan(v));
  EXPECT_FLOAT_EQ(v[0], 1.625f);
  std::vector<float> plain = {1.0f}, none;
  OuterStep({Kind::kSgd, 0.25f, 0.0f}, {2.0f}, absl::MakeSpan(plain), absl::MakeSpan(none));
  EXPECT_FLOAT_EQ(plain[0], 0.5f);
  OuterStep({}, {0.25f}, absl::MakeSpan(plain), absl::MakeSpan(none));
  EXPECT_FLOAT_EQ(plain[0], 0.25f);
}

TEST(OuterOptimizerTest, AppliedRounds_KeepWhatTheRuleSays) {
  std::vector<float> weights = {10};
  ApplyRound(MergeRule::kAdditive, {4.0f}, {3.0f}, absl::MakeSpan(weights));
  EXPECT_FLOAT_EQ(weights[0], 11);
  ApplyRound(MergeRule::kBlend, {4.0f}, {3.0f}, absl::MakeSpan(weights));
  EXPECT_FLOAT_EQ(weights[0], 7.5f);
  ApplyRound(MergeRule::kReplace, {4.0f}, {3.0f}, absl::MakeSpan(weights));
  EXPECT_FLOAT_EQ(weights[0], 4);
}

TEST(ContributionWeightsTest, Tokens_WeighInProportion) {
  const auto weights = ContributionWeights(WeightRule::kTokens, {{300, 3}, {100, 1}, {0, 0}});
  EXPECT_FLOAT_EQ(weights[0], 0.75f);
  EXPECT_FLOAT_EQ(weights[1], 0.25f);
  EXPECT_EQ(weights[2], 0.0f);
  EXPECT_EQ(ContributionWeights(WeightRule::kTokens, {{0, 0}, {0, 0}}), (std::vector<float>{0, 0}));
  const auto late = ContributionWeights(WeightRule::kTokens, {{100, 1, 1.0}, {100, 1, 0.5}});
  EXPECT_FLOAT_EQ(late[1], 1.0f / 3);
}

TEST(ContributionWeightsTest, TokensSquaredOverSteps_EqualsTokensAtEqualTokensAStep) {
  const auto weights = ContributionWeights(WeightRule::kTokensSquaredOverSteps, {{300, 3}, {100, 1}});
  EXPECT_FLOAT_EQ(weights[0], 0.75f);
  const auto uneven = ContributionWeights(WeightRule::kTokensSquaredOverSteps, {{300, 6}, {100, 1}});
  EXPECT_FLOAT_EQ(uneven[0], 0.6f);
}

}  // namespace
}  // namespace stagecoach
