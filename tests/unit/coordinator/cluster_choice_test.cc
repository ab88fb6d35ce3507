#include "coordinator/service/cluster_choice.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/run_spec/run_spec_validation.h"
#include "coordinator/service/plan_builder.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

RunInputs SomeInputs() {
  RunInputs inputs;
  inputs.spec.mutable_model()->set_width(64);
  inputs.spec.mutable_model()->set_layers(6);
  inputs.spec.mutable_model()->set_heads(4);
  inputs.spec.mutable_data()->set_path("/data");
  inputs.spec.mutable_schedule()->set_steps(100);
  inputs.spec.mutable_schedule()->set_sequences(2);
  inputs.spec.mutable_schedule()->set_sequence_tokens(32);
  inputs.spec.set_run_dir("/run");
  inputs.spec.mutable_averaging()->set_choose_clusters(true);
  inputs.vocabulary = 256;
  inputs.training_windows = 90;
  inputs.evaluation_windows = 10;
  FillDefaults(&inputs.spec, 256);
  return inputs;
}

// On machines of their own, every pair 50 ms apart.
Measurements Workers(int count) {
  Measurements measured;
  for (int i = 0; i < count; ++i) {
    WorkerDescription worker;
    worker.name = absl::StrCat("w", i);
    worker.host = absl::StrCat("h", i);
    worker.device = "cpu";
    worker.cores = 2;
    worker.memory_limit_bytes = 8u << 20;
    measured.workers.push_back(worker);
    ProbeResult& probe = measured.probes[worker.name];
    for (UnitTiming* unit :
         {probe.mutable_embedding(), probe.mutable_block(), probe.mutable_tail_block(), probe.mutable_head()}) {
      unit->set_forward_seconds(0.01);
      unit->set_backward_seconds(0.02);
      unit->set_update_seconds(0.001);
      unit->set_parameters(1000);
    }
    for (int k = 0; k < count; ++k) {
      if (k == i) continue;
      LinkResult& link = measured.links[{worker.name, absl::StrCat("w", k)}];
      link.set_rtt_seconds(0.05);
      link.set_bytes_per_second(1e6 * (1 + i));
    }
  }
  return measured;
}

TEST(MeasuredFleetTest, WorkersOfAHost_ShareItsCoresAndItsMemory) {
  Measurements measured = Workers(5);
  for (WorkerDescription& worker : measured.workers) worker.host = "one";
  const Fleet fleet = MeasuredFleet(measured, 1);
  ASSERT_EQ(fleet.workers.size(), 5u);
  EXPECT_DOUBLE_EQ(fleet.workers[0].kinds[1].forward, 0.025);  // 5 threads on 2 cores
  EXPECT_EQ(fleet.workers[0].memory_bytes, (8u << 20) / 5);
  const Fleet apart = MeasuredFleet(Workers(5), 1);
  EXPECT_DOUBLE_EQ(apart.workers[0].kinds[1].forward, 0.01);
  EXPECT_EQ(apart.workers[0].memory_bytes, 8u << 20);
}

TEST(MeasuredFleetTest, MemoryCap_IsTheWorkersOwnAndOnlyLowersItsShare) {
  Measurements measured = Workers(4);
  for (WorkerDescription& worker : measured.workers) worker.host = "one";  // 2 MiB each
  measured.workers[1].memory_cap_bytes = 1u << 20;
  measured.workers[2].memory_cap_bytes = 3u << 20;
  measured.workers[3].memory_cap_bytes = 1u << 20;
  measured.workers[3].memory_limit_bytes = 0;  // not known
  const Fleet fleet = MeasuredFleet(measured, 1);
  EXPECT_EQ(fleet.workers[0].memory_bytes, 2u << 20);
  EXPECT_EQ(fleet.workers[1].memory_bytes, 1u << 20);
  EXPECT_EQ(fleet.workers[2].memory_bytes, 2u << 20);
  EXPECT_EQ(fleet.workers[3].memory_bytes, 1u << 20);
}

TEST(MeasuredFleetTest, PairsThatWereNotMeasured_AreNotUsable) {
  Measurements measured = Workers(3);
  measured.links[{"w0", "w1"}].set_error("refused");
  measured.links.erase({"w1", "w2"});
  const Fleet fleet = MeasuredFleet(measured, 1);
  EXPECT_FALSE(fleet.links.at({0, 1}).usable);
  EXPECT_TRUE(fleet.links.at({1, 0}).usable);
  EXPECT_FALSE(fleet.links.at({1, 2}).usable);
  EXPECT_DOUBLE_EQ(fleet.links.at({2, 1}).bytes_per_second, 3e6);
  EXPECT_DOUBLE_EQ(fleet.workers[2].up_bytes_per_second, 3e6);
  EXPECT_DOUBLE_EQ(fleet.workers[0].down_bytes_per_second, 3e6);
}

TEST(ClusterChoiceTest, EveryDivisionIsPredictedAndNamed) {
  std::vector<size_t> compared;
  const auto predict = [&](const RunInputs& inputs, const Measurements& division) -> absl::StatusOr<DivisionSpeed> {
    const size_t clusters = division.cluster_sizes.size();
    EXPECT_FALSE(inputs.spec.averaging().choose_clusters());
    EXPECT_EQ(std::max(1u, inputs.spec.averaging().clusters()), clusters);
    compared.push_back(clusters);
    return DivisionSpeed{std::vector<double>(clusters, 2.0), 0.5};
  };
  const auto choice = ChooseClusters(SomeInputs(), Workers(4), predict);
  ASSERT_TRUE(choice.ok()) << choice.status();
  ASSERT_FALSE(compared.empty());
  EXPECT_EQ(compared[0], 1u);
  ASSERT_GE(choice->explanation.size(), compared.size());
  EXPECT_TRUE(absl::StartsWith(choice->explanation[0], "1 cluster")) << choice->explanation[0];
  EXPECT_TRUE(absl::StrContains(choice->explanation[0], "predicted 128 tokens/s")) << choice->explanation[0];
}

TEST(ClusterChoiceTest, NoDivisionFits_IsTheErrorOfOneCluster) {
  Measurements measured = Workers(2);
  for (WorkerDescription& worker : measured.workers) worker.memory_limit_bytes = 1000;
  const auto predict = [](const RunInputs&, const Measurements&) -> absl::StatusOr<DivisionSpeed> {
    return absl::InternalError("not reached");
  };
  EXPECT_EQ(ChooseClusters(SomeInputs(), measured, predict).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ClusterChoiceTest, BuiltPlan_HasTheChosenClustersInItsRecord) {
  const auto built = BuildPlan(SomeInputs(), Workers(4), 1);
  ASSERT_TRUE(built.ok()) << built.status();
  const RunRecord& record = built->record;
  EXPECT_FALSE(record.spec().averaging().choose_clusters());
  EXPECT_EQ(std::max(1u, record.spec().averaging().clusters()), built->plans.size());
  EXPECT_EQ(record.clusters_size(), built->plans.size() > 1 ? static_cast<int>(built->plans.size()) : 0);
  EXPECT_EQ(ValidateRunSpec(record.spec()), absl::OkStatus());
  std::string text;
  for (const std::string& line : built->plans[0].explanation()) absl::StrAppend(&text, line, "\n");
  EXPECT_TRUE(absl::StrContains(text, "(chosen): predicted")) << text;
}

}  // namespace
}  // namespace stagecoach
