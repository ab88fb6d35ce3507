// What averaging between clusters means, with the oracle: a round after every step is data parallelism, and clusters
// gain from other clusters only through data that they have not seen themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "model/oracle.h"
#include "tests/unit/model/small_models.h"

namespace stagecoach {
namespace {

constexpr uint64_t kSteps = 12;

// A noisy rule from token to token.
void FillTokens(const RunConfig& config, uint64_t index, bool evaluation, absl::Span<int64_t> ids,
                absl::Span<int64_t> labels) {
  const CounterRng rng(evaluation ? 8 : 7, RngPurpose::kTest, index);
  const int64_t vocabulary = config.model.vocabulary;
  for (uint32_t b = 0; b < config.sequences; ++b) {
    int64_t token = rng.Block(b)[0] % vocabulary;
    for (uint32_t i = 0; i < config.tokens; ++i) {
      const auto words = rng.Block(1000 + b * config.tokens + i);
      ids[b * config.tokens + i] = token;
      token = words[0] < 0.3 * 4294967295.0 ? words[1] % vocabulary : (token * 5 + 3) % vocabulary;
      labels[b * config.tokens + i] = token;
    }
  }
}

OracleBatches Batches(const RunConfig& config) {
  return [config](uint64_t index, bool evaluation, absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
    FillTokens(config, index, evaluation, ids, labels);
  };
}

RunConfig OneCluster(double momentum, uint32_t microbatches) {
  RunConfig config;
  config.model = WithSubspace(SmallLlama());
  config.seed = 5;
  config.optimizer.kind = OptimizerKind::kSgd;
  config.optimizer.learning_rate = 0.05;
  config.optimizer.momentum = momentum;
  config.optimizer.weight_decay = 0;
  config.optimizer.total_steps = config.total_steps = kSteps;
  config.clip_none = true;
  config.microbatches = microbatches;
  config.sequences = 2;
  config.tokens = 8;
  return config;
}

// `rounds` after so many steps each, without delay, fp32, plain mean.
std::vector<RunConfig> Clusters(const RunConfig& one, uint32_t clusters, uint64_t every_steps) {
  std::vector<RunConfig> configs(clusters, one);
  for (uint32_t c = 0; c < clusters; ++c) {
    configs[c].cluster = c;
    configs[c].num_clusters = clusters;
    configs[c].cluster_steps = ClusterSteps(std::vector<uint64_t>(clusters, every_steps), c);
    configs[c].averaging.rounds = {every_steps, 0};
    configs[c].cluster_cuts.assign(clusters, StageCuts{0, one.model.num_units()});
  }
  return configs;
}

double LargestDifference(const OracleResult& a, const OracleResult& b) {
  double largest = 0;
  for (const auto& [name, bytes] : a.state) {
    if (name.rfind("w.0.", 0) != 0) continue;
    const std::string& other = b.state.at(name);
    for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
      float x = 0, y = 0;
      std::memcpy(&x, bytes.data() + i, sizeof(float));
      std::memcpy(&y, other.data() + i, sizeof(float));
      largest = std::max(largest, std::abs(static_cast<double>(x) - y));
    }
  }
  return largest;
}

TEST(OracleRounds, RoundAfterEveryStepOfSgd_IsDataParallelism) {
  for (const double momentum : {0.0, 0.9}) {
    for (const uint32_t clusters : {2u, 3u}) {
      SCOPED_TRACE(testing::Message() << "momentum " << momentum << ", clusters " << clusters);
      // Global steps 2t and 2t + 1 of two clusters are the microbatches of step t of one with twice as many.
      const RunConfig joint = OneCluster(momentum, 2 * clusters), one = OneCluster(momentum, 2);
      const OracleResult expected = RunOracle(joint, Batches(joint));
      const std::vector<OracleResult> averaged = RunClusterOracle(Clusters(one, clusters, 1), Batches(one));
      EXPECT_LT(LargestDifference(averaged[0], expected), 1e-6);
      EXPECT_EQ(averaged[0].weight_hash, averaged[clusters - 1].weight_hash);
      const OracleResult alone = RunOracle(one, Batches(one));
      EXPECT_GT(LargestDifference(averaged[0], alone), 1e-4) << "the clusters trained on the same data";
    }
  }
}

// Public code of this kind trains all clusters on the same data.
TEST(OracleRounds, SameDataInEveryCluster_GainsNothing) {
  const RunConfig one = OneCluster(0.9, 2);
  const OracleResult alone = RunOracle(one, Batches(one));
  std::vector<RunConfig> same = Clusters(one, 2, 4);
  for (RunConfig& config : same) config.cluster_steps = ClusterSteps();
  const std::vector<OracleResult> averaged = RunClusterOracle(same, Batches(one));
  EXPECT_EQ(averaged[0].weight_hash, alone.weight_hash);
  EXPECT_EQ(averaged[1].losses, alone.losses);
}

TEST(OracleRounds, DisjointData_GainAtEqualSteps) {
  double alone = 0, averaged = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    RunConfig one = OneCluster(0.9, 1);
    one.seed = seed;
    one.optimizer.total_steps = one.total_steps = 160;
    one.optimizer.rate_schedule = RateSchedule::kConstant;
    one.evaluation_microbatches = 16;
    alone += RunOracle(one, Batches(one)).evaluations.back().loss;
    averaged += RunClusterOracle(Clusters(one, 4, 4), Batches(one))[0].evaluations.back().loss;
  }
  EXPECT_LT(averaged, alone - 0.02) << "sums over three seeds";
}

}  // namespace
}  // namespace stagecoach
