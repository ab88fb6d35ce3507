#include "model/record_reader.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace stagecoach {
namespace {

RunRecord ARecord() {
  RunRecord record;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"pb(
                                                              spec {
                                                                name: "run"
                                                                seed: 7
                                                                threads: 2
                                                                model {
                                                                  architecture: ARCHITECTURE_GPT2
                                                                  width: 64
                                                                  layers: 4
                                                                  heads: 8
                                                                  kv_heads: 4
                                                                  feedforward: 96
                                                                  vocabulary: 300
                                                                  max_tokens: 32
                                                                  norm: NORM_REORDERED
                                                                  compression: COMPRESSION_SUBSPACE
                                                                  rank: 16
                                                                  tail_layers: 2
                                                                  dropout: 0.25
                                                                  rope_theta: 5000
                                                                  compute: COMPUTE_TYPE_BF16
                                                                  norm_epsilon: 0.5
                                                                }
                                                                data { path: "/data" validation_fraction: 0.1 }
                                                                optimizer {
                                                                  kind: OPTIMIZER_KIND_MUON
                                                                  learning_rate: 0.5
                                                                  muon_learning_rate: 0.25
                                                                  weight_decay: 0.125
                                                                  muon_weight_decay: 0.0625
                                                                  beta1: 0.75
                                                                  beta2: 0.875
                                                                  epsilon: 0.03125
                                                                  momentum: 0.5
                                                                  nesterov: true
                                                                  rate_schedule: RATE_SCHEDULE_WSD
                                                                  warmup_steps: 3
                                                                  clip: CLIP_STAGE
                                                                  clip_norm: 2
                                                                }
                                                                schedule {
                                                                  kind: SCHEDULE_KIND_FD_2BW
                                                                  steps: 11
                                                                  microbatches: 6
                                                                  sequences: 2
                                                                  sequence_tokens: 32
                                                                  recompute: RECOMPUTE_OFF
                                                                }
                                                                evaluation { every_steps: 5 microbatches: 3 }
                                                                checkpoint { every_steps: 4 keep: 2 }
                                                              }
                                                              j_table { from_step: 0 j: 0 }
                                                              j_table { from_step: 2 j: 5 }
                                                              cuts: 2
                                                              cuts: 3
                                                              codecs: WIRE_FORMAT_INT8
                                                              codecs: WIRE_FORMAT_BF16
                                                              training_windows: 100
                                                              evaluation_windows: 10
                                                              error_feedback: 0.5
                                                            )pb",
                                                            &record));
  return record;
}

TEST(RecordReader, GoodRecord_EveryFieldArrives) {
  const auto config = ReadRunConfig(ARecord());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->seed, 7u);
  EXPECT_EQ(config->threads, 2);
  const ModelConfig& model = config->model;
  EXPECT_EQ(model.architecture, Architecture::kGpt2);
  EXPECT_EQ(model.norm, NormPlacement::kReordered);
  EXPECT_EQ(model.compression, Compression::kSubspace);
  EXPECT_EQ(model.compute, ComputeType::kBf16);
  EXPECT_EQ((std::vector<int64_t>{model.width, model.layers, model.heads, model.kv_heads, model.feedforward,
                                  model.vocabulary, model.max_tokens, model.rank, model.tail_layers}),
            (std::vector<int64_t>{64, 4, 8, 4, 96, 300, 32, 16, 2}));
  EXPECT_EQ(model.dropout, 0.25f);
  EXPECT_EQ(model.rope_theta, 5000.0f);
  EXPECT_EQ(model.norm_epsilon, 0.5f);
  const OptimizerConfig& optimizer = config->optimizer;
  EXPECT_EQ(optimizer.kind, OptimizerKind::kMuon);
  EXPECT_EQ(optimizer.rate_schedule, RateSchedule::kWsd);
  EXPECT_EQ((std::vector<double>{optimizer.learning_rate, optimizer.muon_learning_rate, optimizer.weight_decay,
                                 optimizer.muon_weight_decay, optimizer.beta1, optimizer.beta2, optimizer.epsilon,
                                 optimizer.momentum, optimizer.error_feedback}),
            (std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.75, 0.875, 0.03125, 0.5, 0.5}));
  EXPECT_TRUE(optimizer.nesterov);
  EXPECT_EQ(optimizer.warmup_steps, 3u);
  EXPECT_EQ(optimizer.total_steps, 11u);
  EXPECT_TRUE(config->clip_per_stage);
  EXPECT_FALSE(config->clip_none);
  EXPECT_EQ(config->clip_norm, 2);
  EXPECT_EQ(config->total_steps, 11u);
  EXPECT_EQ(config->microbatches, 6u);
  EXPECT_EQ(config->sequences, 2u);
  EXPECT_EQ(config->tokens, 32u);
  EXPECT_EQ(config->recompute, RecomputeMode::kOff);
  EXPECT_EQ(config->evaluation_every, 5u);
  EXPECT_EQ(config->evaluation_microbatches, 3u);
  EXPECT_EQ(config->checkpoint_every, 4u);
  EXPECT_EQ(config->data_path, "/data");
  EXPECT_EQ(config->training_windows, 100u);
  EXPECT_EQ(config->evaluation_windows, 10u);
  ASSERT_EQ(config->j_table.size(), 2u);
  EXPECT_EQ(config->j_table[1].from_step, 2u);
  EXPECT_EQ(config->j_table[1].j, 5u);
  EXPECT_EQ(config->cuts, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(config->codecs, (std::vector<WireFormat>{WireFormat::kInt8, WireFormat::kBf16}));
}

struct BadCase {
  std::string field;  // must stand in the message
  std::function<void(RunRecord*)> damage;
};

TEST(RecordReader, BadField_IsNamed) {
  const std::vector<BadCase> cases = {
      {"spec.threads", [](RunRecord* r) { r->mutable_spec()->set_threads(0); }},
      {"spec.model.architecture", [](RunRecord* r) { r->mutable_spec()->mutable_model()->clear_architecture(); }},
      {"spec.model.norm", [](RunRecord* r) { r->mutable_spec()->mutable_model()->clear_norm(); }},
      {"spec.model.compression", [](RunRecord* r) { r->mutable_spec()->mutable_model()->clear_compression(); }},
      {"spec.model.compute", [](RunRecord* r) { r->mutable_spec()->mutable_model()->clear_compute(); }},
      {"spec.model.width", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_width(4); }},
      {"spec.model.layers", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_layers(0); }},
      {"spec.model.heads", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_heads(7); }},
      {"spec.model.kv_heads", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_kv_heads(3); }},
      {"spec.model.feedforward", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_feedforward(0); }},
      {"spec.model.vocabulary", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_vocabulary(1); }},
      {"spec.model.max_tokens", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_max_tokens(0); }},
      {"spec.model.rank", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_rank(65); }},
      {"spec.model.tail_layers", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_tail_layers(5); }},
      {"spec.model.dropout", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_dropout(1); }},
      {"spec.model.norm_epsilon", [](RunRecord* r) { r->mutable_spec()->mutable_model()->set_norm_epsilon(0); }},
      {"spec.optimizer.kind", [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->clear_kind(); }},
      {"spec.optimizer.beta2", [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->set_beta2(1); }},
      {"spec.optimizer.learning_rate",
       [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->set_learning_rate(0); }},
      {"spec.optimizer.muon_learning_rate",
       [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->set_muon_learning_rate(0); }},
      {"spec.optimizer.rate_schedule",
       [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->clear_rate_schedule(); }},
      {"spec.optimizer.clip ", [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->clear_clip(); }},
      {"spec.optimizer.clip_norm", [](RunRecord* r) { r->mutable_spec()->mutable_optimizer()->set_clip_norm(0); }},
      {"spec.schedule.steps", [](RunRecord* r) { r->mutable_spec()->mutable_schedule()->set_steps(0); }},
      {"spec.schedule.microbatches", [](RunRecord* r) { r->mutable_spec()->mutable_schedule()->set_microbatches(0); }},
      {"spec.schedule.sequences", [](RunRecord* r) { r->mutable_spec()->mutable_schedule()->set_sequences(0); }},
      {"spec.schedule.sequence_tokens",
       [](RunRecord* r) { r->mutable_spec()->mutable_schedule()->set_sequence_tokens(33); }},
      {"spec.schedule.recompute", [](RunRecord* r) { r->mutable_spec()->mutable_schedule()->clear_recompute(); }},
      {"spec.data.path", [](RunRecord* r) { r->mutable_spec()->mutable_data()->clear_path(); }},
      {"j_table", [](RunRecord* r) { r->clear_j_table(); }},
      {"j_table", [](RunRecord* r) { r->mutable_j_table(0)->set_from_step(1); }},
      {"j_table", [](RunRecord* r) { r->mutable_j_table(1)->set_from_step(0); }},
      {"cuts", [](RunRecord* r) { r->set_cuts(1, 2); }},
      {"cuts", [](RunRecord* r) { r->set_cuts(1, 4); }},  // inside the unconstrained tail
      {"codecs", [](RunRecord* r) { r->mutable_codecs()->RemoveLast(); }},
      {"codecs", [](RunRecord* r) { r->set_codecs(0, WIRE_FORMAT_UNSPECIFIED); }},
      {"stage_delays", [](RunRecord* r) { r->add_stage_delays(1); }},
      {"training_windows", [](RunRecord* r) { r->clear_training_windows(); }},
      {"evaluation_windows", [](RunRecord* r) { r->clear_evaluation_windows(); }},
      {"error_feedback", [](RunRecord* r) { r->set_error_feedback(-1); }},
  };
  for (const BadCase& bad : cases) {
    RunRecord record = ARecord();
    bad.damage(&record);
    const auto config = ReadRunConfig(record);
    ASSERT_FALSE(config.ok()) << bad.field;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()), ::testing::HasSubstr("run record: " + bad.field));
  }
}

TEST(RecordReader, SpecAlone_IsOneStageWithoutDelay) {
  RunSpec spec = ARecord().spec();
  spec.mutable_schedule()->set_microbatches(0);
  const auto config = ReadRunConfig(spec);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_stages(), 1u);
  EXPECT_EQ(config->microbatches, 1u);
  EXPECT_EQ(config->RuleOfStage(0).MaxLag(), 0u);
}

}  // namespace
}  // namespace stagecoach
