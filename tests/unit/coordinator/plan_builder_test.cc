#include "coordinator/service/plan_builder.h"

#include "absl/strings/str_cat.h"
#include "common/run_spec/run_spec_validation.h"
#include "coordinator/planning_files/run_model.h"
#include "coordinator/service/wire_checks.h"
#include "google/protobuf/util/message_differencer.h"
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
  inputs.vocabulary = 256;
  inputs.training_windows = 90;
  inputs.evaluation_windows = 10;
  FillDefaults(&inputs.spec, 256);
  return inputs;
}

Measurements Workers(int count) {
  Measurements measured;
  for (int i = 0; i < count; ++i) {
    WorkerDescription worker;
    worker.name = absl::StrCat("w", i);
    worker.incarnation = 10 + i;
    worker.address = absl::StrCat("127.0.0.1:", 7000 + i);
    worker.host = absl::StrCat("h", i);
    worker.torch_version = "2.11.0";
    worker.cpu_capability = "AVX2";
    measured.workers.push_back(worker);
    ProbeResult& probe = measured.probes[worker.name];
    for (UnitTiming* unit :
         {probe.mutable_embedding(), probe.mutable_block(), probe.mutable_tail_block(), probe.mutable_head()}) {
      unit->set_forward_seconds(0.01);
      unit->set_backward_seconds(0.02);
      unit->set_update_seconds(0.001);
      unit->set_parameters(1000);
    }
  }
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < count; ++k) {
      LinkResult& link = measured.links[{absl::StrCat("w", i), absl::StrCat("w", k)}];
      link.set_rtt_seconds(0.05);
      link.set_bytes_per_second(1e7);
    }
  }
  return measured;
}

TEST(PlanBuilderTest, NewRun_HasEverythingThatItsArithmeticDependsOn) {
  const auto built = BuildPlan(SomeInputs(), Workers(3), 5);
  ASSERT_TRUE(built.ok()) << built.status();
  const RunRecord& record = built->record;
  ASSERT_EQ(record.cuts_size(), 2);
  EXPECT_EQ(record.cuts(0), 2u);  // 8 units of equal time: the earliest of 2, 3, 3 and 3, 2, 3 and 3, 3, 2
  EXPECT_EQ(record.codecs_size(), 2);
  EXPECT_EQ(record.codecs(0), WIRE_FORMAT_INT8);
  ASSERT_EQ(record.j_table_size(), 2);
  EXPECT_EQ(record.j_table(1).from_step(), record.spec().schedule().sync_warmup_steps());
  EXPECT_GT(record.j_table(1).j(), 0u);
  EXPECT_EQ(record.spec().optimizer().kind(), OPTIMIZER_KIND_MUON);
  EXPECT_EQ(record.error_feedback(), record.spec().optimizer().error_feedback());
  EXPECT_GT(record.error_feedback(), 0);
  EXPECT_EQ(record.training_windows(), 90u);
  EXPECT_EQ(record.torch_version(), "2.11.0");
  EXPECT_EQ(ValidateRunSpec(record.spec()), absl::OkStatus());
  EXPECT_EQ(built->plans[0].epoch(), 5u);
  ASSERT_EQ(built->plans[0].stages_size(), 3);
  EXPECT_EQ(built->plans[0].stages(2).end_unit(), 8u);
  EXPECT_EQ(built->plans[0].stages(1).incarnation(), 11u);
  EXPECT_EQ(built->plans[0].prediction().window(), built->plans[0].stages(0).window());
  EXPECT_GT(built->plans[0].prediction().tokens_per_second(), 0);
  EXPECT_GE(built->plans[0].prediction().compute_bound_tokens_per_second(),
            built->plans[0].prediction().tokens_per_second());
  EXPECT_EQ(built->stop_after_step, 100u);
}

TEST(PlanBuilderTest, Clusters_HaveTheirOwnCutsAndTheRunsSchedule) {
  RunInputs inputs = SomeInputs();
  inputs.spec.mutable_averaging()->set_clusters(2);
  FillDefaults(&inputs.spec, 256);
  Measurements measured = Workers(4);
  measured.cluster_sizes = {2, 2};
  for (const char* worker : {"w2", "w3"}) measured.probes[worker].mutable_embedding()->set_forward_seconds(0.2);
  const auto built = BuildPlan(inputs, measured, 5);
  ASSERT_TRUE(built.ok()) << built.status();
  const RunRecord& record = built->record;
  ASSERT_EQ(record.clusters_size(), 2);
  EXPECT_EQ(record.cuts_size(), 0);
  ASSERT_EQ(record.clusters(0).cuts_size(), 1);
  EXPECT_EQ(record.clusters(0).cuts(0), 4u);
  EXPECT_EQ(record.clusters(1).cuts(0), 2u);  // a slow embedding
  EXPECT_EQ(record.clusters(1).name(), "cluster-1");
  EXPECT_EQ(record.clusters(1).codecs_size(), 1);
  EXPECT_EQ(record.clusters(1).steps_per_round(), 100u);
  ASSERT_EQ(built->plans.size(), 2u);
  EXPECT_EQ(built->plans[1].cluster(), "cluster-1");
  EXPECT_EQ(built->plans[1].stages(0).worker(), "w2");
  EXPECT_EQ(built->plans[1].stages(1).first_unit(), 2u);
  EXPECT_EQ(built->plans[1].epoch(), 5u);
  EXPECT_EQ(ValidateRunSpec(record.spec()), absl::OkStatus());
}

TEST(PlanBuilderTest, ClusterRun_LikeKeepsTheCutsOfEach) {
  RunInputs inputs = SomeInputs();
  inputs.spec.mutable_averaging()->set_clusters(2);
  FillDefaults(&inputs.spec, 256);
  Measurements measured = Workers(4);
  measured.cluster_sizes = {2, 2};
  const auto built = BuildPlan(inputs, measured, 5);
  ASSERT_TRUE(built.ok()) << built.status();
  inputs.earlier = built->record;
  inputs.earlier->mutable_clusters(1)->set_cuts(0, 3);
  inputs.spec = inputs.earlier->spec();
  const auto like = BuildPlan(inputs, measured, 6);
  ASSERT_TRUE(like.ok()) << like.status();
  EXPECT_EQ(like->record.clusters(0).cuts(0), built->record.clusters(0).cuts(0));
  EXPECT_EQ(like->record.clusters(1).cuts(0), 3u);
  measured.cluster_sizes = {3, 1};
  EXPECT_EQ(BuildPlan(inputs, measured, 7).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PlanBuilderTest, Pipedream_CountsUpdates) {
  RunInputs inputs = SomeInputs();
  inputs.spec.mutable_schedule()->set_kind(SCHEDULE_KIND_PIPEDREAM);
  inputs.spec.mutable_schedule()->set_microbatches(4);
  inputs.spec.mutable_optimizer()->set_clip(CLIP_STAGE);
  inputs.spec.mutable_evaluation()->set_every_steps(10);
  inputs.stop_after = 20;
  const auto built = BuildPlan(inputs, Workers(2), 1);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->record.spec().schedule().steps(), 400u);
  EXPECT_EQ(built->record.spec().schedule().microbatches(), 1u);
  EXPECT_EQ(built->record.updates_per_step(), 4u);
  EXPECT_EQ(built->record.spec().evaluation().every_steps(), 40u);
  EXPECT_EQ(built->stop_after_step, 80u);
  ASSERT_EQ(built->record.stage_delays_size(), 2);
  EXPECT_EQ(built->record.stage_delays(0), built->plans[0].stages(0).window() - 1);
  EXPECT_EQ(built->record.error_feedback(), 0);
}

TEST(PlanBuilderTest, LikeAnEarlierRun_KeepsItsArithmetic) {
  const auto first = BuildPlan(SomeInputs(), Workers(3), 1);
  ASSERT_TRUE(first.ok());
  RunInputs inputs = SomeInputs();
  inputs.earlier = first->record;
  inputs.spec = first->record.spec();
  inputs.spec.set_run_dir("/other");
  Measurements fast = Workers(3);  // other links, other speeds
  for (auto& [pair, link] : fast.links) link.set_rtt_seconds(0.5);
  fast.probes["w0"].mutable_block()->set_forward_seconds(0.1);
  const auto second = BuildPlan(inputs, fast, 2);
  ASSERT_TRUE(second.ok()) << second.status();
  RunRecord expected = first->record;
  expected.mutable_spec()->set_run_dir("/other");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(expected, second->record));
  EXPECT_NE(first->plans[0].stages(0).window(), second->plans[0].stages(0).window());
  EXPECT_EQ(BuildPlan(inputs, Workers(2), 3).status().message(),
            "the earlier run has 3 stages, there are 2 workers; use as many workers as stages");
}

TEST(PlanBuilderTest, Resume_MayChangeTheCutsOnAnFp32WireOnly) {
  RunInputs start = SomeInputs();
  for (const auto format : {WIRE_FORMAT_FP32, WIRE_FORMAT_INT8}) {
    start.spec.mutable_wire()->set_format(format);
    const auto first = BuildPlan(start, Workers(3), 1);
    ASSERT_TRUE(first.ok());
    RunInputs inputs = start;
    inputs.earlier = first->record;
    inputs.spec = first->record.spec();
    inputs.checkpoint.emplace();
    inputs.checkpoint->set_step(40);
    const auto second = BuildPlan(inputs, Workers(2), 2);
    EXPECT_EQ(second.ok(), format == WIRE_FORMAT_FP32) << second.status();
    if (!second.ok()) continue;
    EXPECT_EQ(second->record.cuts_size(), 1);
    EXPECT_EQ(second->record.codecs_size(), 1);
    EXPECT_EQ(second->first_step, 40u);
    EXPECT_EQ(second->record.j_table(1).j(), first->record.j_table(1).j());
    inputs.stop_after = 40;
    EXPECT_FALSE(BuildPlan(inputs, Workers(2), 2).ok());  // nothing to do
  }
}

// 1 M parameters a unit, 8 units, 2 workers: what one worker needs for 4 units at J = M (tau 1), AdamW, error feedback.
constexpr uint64_t kParameters = 1000000;
constexpr uint64_t kBytesAtLagOne = 4 * kParameters * (3 * 4 + 8 + 4);

RunInputs AdamInputs(int64_t j) {
  RunInputs inputs = SomeInputs();
  inputs.spec.mutable_optimizer()->set_kind(OPTIMIZER_KIND_ADAMW);
  inputs.spec.mutable_schedule()->set_microbatches(4);
  inputs.spec.mutable_schedule()->set_j(j);
  return inputs;
}

Measurements WorkersWithMemory(uint64_t bytes) {
  Measurements measured = Workers(2);
  for (auto& worker : measured.workers) worker.memory_limit_bytes = bytes;
  for (auto& [name, probe] : measured.probes) {
    for (UnitTiming* unit :
         {probe.mutable_embedding(), probe.mutable_block(), probe.mutable_tail_block(), probe.mutable_head()}) {
      unit->set_parameters(kParameters);
    }
  }
  return measured;
}

// A window of 20 microbatches in flight keeps less than a megabyte of frames here.
constexpr uint64_t kFrames = 1000000;

TEST(PlanBuilderTest, OlderWeights_NeedMoreMemory) {
  EXPECT_TRUE(BuildPlan(AdamInputs(4), WorkersWithMemory(kBytesAtLagOne + kFrames), 1).ok());
  EXPECT_FALSE(BuildPlan(AdamInputs(4), WorkersWithMemory(kBytesAtLagOne - kParameters), 1).ok());
  // J > M: one version more.
  const auto refused = BuildPlan(AdamInputs(8), WorkersWithMemory(kBytesAtLagOne + kFrames), 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_TRUE(BuildPlan(AdamInputs(8), WorkersWithMemory(kBytesAtLagOne + 4 * 4 * kParameters + kFrames), 1).ok());
  // Synchronous: two buffers, no error feedback.
  EXPECT_TRUE(BuildPlan(AdamInputs(0), WorkersWithMemory(4 * kParameters * 16 + kFrames), 1).ok());
}

TEST(PlanBuilderTest, WorkersOfOneHost_ShareItsMemory) {
  Measurements measured = WorkersWithMemory(kBytesAtLagOne + kFrames);
  for (auto& worker : measured.workers) worker.host = "one";
  EXPECT_EQ(BuildPlan(AdamInputs(4), measured, 1).status().code(), absl::StatusCode::kResourceExhausted);
  for (auto& worker : measured.workers) worker.memory_limit_bytes *= 2;
  EXPECT_TRUE(BuildPlan(AdamInputs(4), measured, 1).ok());
  measured = WorkersWithMemory(kBytesAtLagOne + kFrames);
  for (auto& worker : measured.workers) worker.host = "one", worker.device = "cuda:" + worker.name.substr(1);
  EXPECT_TRUE(BuildPlan(AdamInputs(4), measured, 1).ok()) << "two devices do not share their memory";
}

TEST(PlanBuilderTest, KeptActivationsAndFrames_Count) {
  Measurements measured = WorkersWithMemory(kBytesAtLagOne + kFrames);
  for (auto& [name, probe] : measured.probes) probe.mutable_block()->set_activation_bytes(kParameters);
  for (auto& worker : measured.workers) worker.memory_limit_bytes += kParameters;
  RunInputs inputs = AdamInputs(4);
  EXPECT_TRUE(BuildPlan(inputs, measured, 1).ok()) << "recomputed: one microbatch of one block";
  inputs.spec.mutable_schedule()->set_recompute(RECOMPUTE_OFF);
  EXPECT_FALSE(BuildPlan(inputs, measured, 1).ok());
  inputs = AdamInputs(4);
  inputs.spec.mutable_schedule()->set_sequences(512);  // frames of 0.5 MB
  EXPECT_FALSE(BuildPlan(inputs, measured, 1).ok());
}

TEST(PlanBuilderTest, SharedCoresAndDevices_LimitTheRate) {
  Measurements measured = Workers(2);
  for (auto& worker : measured.workers) {
    worker.host = "one";
    worker.cores = 1;
  }
  for (const auto& [device, sharing] : std::map<std::string, bool>{{"cpu", true}, {"cuda:0", true}, {"fake", false}}) {
    for (auto& worker : measured.workers) worker.device = device;
    const auto built = BuildPlan(SomeInputs(), measured, 1);
    ASSERT_TRUE(built.ok());
    EXPECT_NEAR(built->plans[0].prediction().microbatch_seconds(), sharing ? 8 * 0.03 : 4 * 0.03, 1e-9) << device;
  }
}

TEST(PlanBuilderTest, Cuts_AreNotBehindTailBlocks) {
  ModelSpec model = SomeInputs().spec.model();
  model.set_tail_layers(2);
  EXPECT_EQ(AllowedCuts(model), (std::vector<bool>{false, false, true, true, true, true, false, false}));
  model.set_compression(COMPRESSION_NONE);
  EXPECT_EQ(AllowedCuts(model), (std::vector<bool>{false, false, true, true, true, true, true, true}));
}

TEST(WireChecksTest, MalformedMessages_AreRefused) {
  WorkerMessage message;
  EXPECT_FALSE(CheckWorkerMessage(message).ok());
  message.mutable_probe_result()->mutable_block()->set_forward_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(CheckWorkerMessage(message).ok());
  message.mutable_probe_result()->mutable_block()->set_forward_seconds(-1);
  EXPECT_FALSE(CheckWorkerMessage(message).ok());
  message.mutable_link_result()->set_bytes_per_second(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(CheckWorkerMessage(message).ok());
  message.mutable_stage_failed()->set_error(std::string(10000, 'x'));
  EXPECT_FALSE(CheckWorkerMessage(message).ok());
  for (int i = 0; i < 100; ++i) (*message.mutable_heartbeat()->mutable_counters()->mutable_staleness())[i] = 1;
  EXPECT_FALSE(CheckWorkerMessage(message).ok());
  message.mutable_heartbeat()->mutable_counters()->clear_staleness();
  EXPECT_TRUE(CheckWorkerMessage(message).ok());
}

TEST(WireChecksTest, HiddenTensor_IsCounted) {
  WorkerMessage message;
  message.mutable_heartbeat()->set_epoch(3);
  EXPECT_EQ(BytesFieldsSize(message), 0u);
  auto* heartbeat = message.mutable_heartbeat();
  heartbeat->GetReflection()->MutableUnknownFields(heartbeat)->AddLengthDelimited(15, std::string(1000, 'x'));
  EXPECT_EQ(BytesFieldsSize(message), 1000u);
}

}  // namespace
}  // namespace stagecoach
