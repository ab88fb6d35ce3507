// The planner's model of a run, from its spec alone.
#include "coordinator/planning_files/run_model.h"

#include <cmath>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

RunSpec ASpec() {
  RunSpec spec;
  ModelSpec* model = spec.mutable_model();
  model->set_width(64);
  model->set_layers(4);
  model->set_heads(4);
  model->set_feedforward(96);
  model->set_vocabulary(256);
  model->set_rank(8);
  spec.mutable_schedule()->set_steps(100);
  spec.mutable_schedule()->set_microbatches(8);
  spec.mutable_schedule()->set_sequences(2);
  spec.mutable_schedule()->set_sequence_tokens(32);
  return spec;
}

RunModel ModelOf(const RunSpec& spec, const RunModelOptions& options = {}) { return RunModelOf(spec, options).value(); }

TEST(RunModelTest, SubspaceModel_HasUnitsOfFourKindsAndSmallFrames) {
  const PlanModel plan = ModelOf(ASpec()).plan;
  ASSERT_EQ(plan.units.size(), 6u);
  const uint64_t inside = 3 * 64 * 64 + 2 * 96 * 64;  // q, k, v, gate, up
  EXPECT_EQ(plan.units[0].parameters, 256u * 8);
  EXPECT_EQ(plan.units[1].parameters, inside + 8 * 64 + 8 * 96);
  EXPECT_EQ(plan.units[3].kind, plan.units[1].kind);
  EXPECT_EQ(plan.units[4].parameters, inside + 64 * 64 + 64 * 96);
  EXPECT_EQ(plan.units[5].parameters, 64u + 256 * 64);
  EXPECT_EQ(plan.units[1].optimizer_bytes, 4u);  // muon is the default of a delayed schedule
  EXPECT_EQ(plan.units[5].optimizer_bytes, 8u);
  EXPECT_EQ(plan.cut_allowed, (std::vector<bool>{false, false, true, true, true, false}));
  EXPECT_EQ(plan.frame_bytes, 64 + 64 * (8 + 2));  // int8: a scale of two bytes for 32 numbers or fewer
  EXPECT_EQ(plan.tokens_per_microbatch, 64);
  EXPECT_EQ(plan.microbatches, 8u);
  EXPECT_FALSE(plan.synchronous);
  EXPECT_EQ(plan.memory.lag, 1u);
  EXPECT_TRUE(plan.memory.error_feedback);
}

TEST(RunModelTest, DenseModel_HasWideFramesAndNoTail) {
  RunSpec spec = ASpec();
  spec.mutable_model()->set_compression(COMPRESSION_NONE);
  spec.mutable_model()->clear_rank();
  spec.mutable_model()->set_architecture(ARCHITECTURE_GPT2);
  spec.mutable_model()->set_max_tokens(48);
  const RunModel model = ModelOf(spec);
  EXPECT_EQ(model.plan.units[0].parameters, 256u * 64 + 48 * 64);
  EXPECT_EQ(model.plan.units[4].kind, model.plan.units[1].kind);
  EXPECT_FALSE(model.kind_used[static_cast<uint32_t>(UnitKind::kTailBlock)]);
  EXPECT_EQ(model.plan.frame_bytes, 64 + 64 * 64 * 2);  // bf16
}

TEST(RunModelTest, WorkOfABlock_CountsProductsAttentionAndExpansion) {
  const RunModel model = ModelOf(ASpec());
  const double weights = 3 * 64 * 64 + 2 * 96 * 64 + 8 * 64 + 8 * 96;
  const KindWork& block = model.work[static_cast<uint32_t>(UnitKind::kBlock)];
  EXPECT_DOUBLE_EQ(block.forward_flops, 64 * (2 * weights + 4 * 32 * 64 + 4 * 8 * 64));
  EXPECT_DOUBLE_EQ(block.backward_flops, 3 * block.forward_flops);
  EXPECT_GT(block.update_flops, 0);
  const KindWork& head = model.work[static_cast<uint32_t>(UnitKind::kHead)];
  EXPECT_DOUBLE_EQ(head.forward_flops, 64 * 2.0 * 256 * 64);
  EXPECT_DOUBLE_EQ(head.backward_flops, 2 * head.forward_flops);  // the last stage recomputes nothing
  EXPECT_EQ(head.update_flops, 0);
}

TEST(RunModelTest, SynchronousSchedule_KeepsOneVersion) {
  RunSpec spec = ASpec();
  spec.mutable_schedule()->set_kind(SCHEDULE_KIND_SYNC);
  const PlanModel plan = ModelOf(spec).plan;
  EXPECT_TRUE(plan.synchronous);
  EXPECT_EQ(plan.memory.lag, 0u);
  EXPECT_FALSE(plan.memory.error_feedback);
  EXPECT_EQ(plan.units[1].optimizer_bytes, 8u);  // adamw
}

TEST(RunModelTest, Averaging_CountsBytesAndCopies) {
  RunSpec spec = ASpec();
  spec.mutable_averaging()->set_every_steps(20);
  const PlanModel averaging = ModelOf(spec).plan;
  EXPECT_EQ(averaging.steps_per_round, 20);
  EXPECT_DOUBLE_EQ(averaging.averaging_bytes, 1.03125);
  EXPECT_EQ(averaging.memory.round_bytes, 20u);
  EXPECT_EQ(ModelOf(spec, {.rounds_in_limit = false}).plan.memory.round_bytes, 0u);
  const PlanModel alone = ModelOf(spec, {.averages = false}).plan;
  EXPECT_TRUE(std::isinf(alone.steps_per_round));
  EXPECT_EQ(alone.memory.round_bytes, 0u);
}

TEST(RunModelTest, WhatCannotBePlanned_IsRefused) {
  RunSpec spec = ASpec();
  spec.mutable_model()->clear_vocabulary();
  EXPECT_EQ(RunModelOf(spec, {}).status().message(),
            "model.vocabulary: is missing; without the data it must be given (bytes: 256)");
  spec.mutable_schedule()->set_kind(SCHEDULE_KIND_GPIPE);
  EXPECT_EQ(RunModelOf(spec, {}).status().message(),
            "schedule.kind: is a baseline with windows of its own, which are not planned; allowed: fd-2bw, sync, 2bw");
}

}  // namespace
}  // namespace stagecoach
