#include "common/run_spec/run_spec_record.h"

#include "common/run_spec/run_spec_flags.h"
#include "common/run_spec/run_spec_validation.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

RunSpec AWrittenSpec() {
  RunSpec spec;
  spec.set_run_dir("/runs/one");
  spec.mutable_model()->set_width(64);
  spec.mutable_model()->set_layers(4);
  spec.mutable_model()->set_heads(4);
  spec.mutable_data()->set_path("/data");
  spec.mutable_schedule()->set_steps(100);
  spec.mutable_schedule()->set_sequences(2);
  spec.mutable_schedule()->set_sequence_tokens(32);
  spec.mutable_evaluation()->set_every_steps(10);
  return spec;
}

// As planning leaves it.
RunRecord ARecord(const RunSpec& written, uint64_t updates_per_step = 1) {
  RunRecord record;
  RunSpec* spec = record.mutable_spec();
  *spec = written;
  FillDefaults(spec, 256);
  ScaleSteps(updates_per_step, spec);
  const bool pipedream = updates_per_step > 1;  // its delays are those of the stages, J is 0
  FillPlannedDefaults(spec, pipedream ? 1 : 8, pipedream ? 0 : 4, true);
  record.set_updates_per_step(updates_per_step);
  return record;
}

absl::Status Merge(const RunSpec& wanted, const RunRecord& record, std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> ignored;
  return MergeWithRecord(wanted, record, notes == nullptr ? &ignored : notes).status();
}

TEST(RunSpecRecordTest, ValuesThatWereNotGiven_ContradictNothing) {
  const RunRecord record = ARecord(AWrittenSpec());
  std::vector<std::string> notes;
  const auto merged = MergeWithRecord(AWrittenSpec(), record, &notes);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(merged->SerializeAsString(), record.spec().SerializeAsString());
  EXPECT_EQ(Merge(record.spec(), record), absl::OkStatus());
}

// Each of these was ignored in silence.
TEST(RunSpecRecordTest, ContradictingValues_AreRefusedWithKeyAndBothValues) {
  const RunRecord record = ARecord(AWrittenSpec());
  struct Case {
    const char *key, *value, *message;
  };
  for (const Case& wrong :
       {Case{"seed", "2", "seed: 2 contradicts the record of the earlier run, which has 1;"},
        Case{"schedule.j", "3", "schedule.j: 3 contradicts the record"},
        Case{"wire.format", "fp32",
             "wire.format: fp32 contradicts the record of the earlier run, "
             "which has int8;"},
        Case{"threads", "2", "threads: 2 contradicts"}, Case{"model.width", "128", "model.width: 128 contradicts"},
        Case{"model.dropout", "0.5", "which has none (default 0);"},
        Case{"optimizer.learning_rate", "0.001", "which has 0.0003;"},
        Case{"optimizer.weight_decay", "0", "optimizer.weight_decay: 0 contradicts"},
        Case{"schedule.kind", "gpipe", "schedule.kind: gpipe contradicts"},
        Case{"schedule.microbatches", "4", "which has 8;"}, Case{"data.validation_fraction", "0.1", "which has 0.02;"},
        Case{"averaging.clusters", "2", "averaging.clusters: 2 contradicts"}}) {
    RunSpec wanted = AWrittenSpec();
    ASSERT_EQ(ApplyOverride(&wanted, wrong.key, wrong.value), absl::OkStatus());
    const absl::Status status = Merge(wanted, record);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.key;
    EXPECT_NE(status.message().find(wrong.message), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("leave it out"), absl::string_view::npos) << status;
  }
}

TEST(RunSpecRecordTest, ChosenClusters_AreThoseOfTheRecord) {
  RunSpec wanted = AWrittenSpec();
  wanted.mutable_averaging()->set_choose_clusters(true);
  wanted.mutable_averaging()->set_clusters(2);
  wanted.mutable_averaging()->set_every_steps(7);
  EXPECT_EQ(Merge(wanted, ARecord(AWrittenSpec())), absl::OkStatus());  // one was chosen: no averaging
  RunSpec two = AWrittenSpec();
  two.mutable_averaging()->set_clusters(2);
  two.mutable_averaging()->set_every_steps(7);
  std::vector<std::string> notes;
  const auto merged = MergeWithRecord(wanted, ARecord(two), &notes);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->averaging().clusters(), 2u);
  EXPECT_FALSE(merged->averaging().choose_clusters());
  two.mutable_averaging()->set_clusters(3);
  EXPECT_FALSE(Merge(wanted, ARecord(two)).ok());  // more than may be chosen
}

TEST(RunSpecRecordTest, WhatMayChange_IsTakenOrNoted) {
  const RunRecord record = ARecord(AWrittenSpec());
  RunSpec wanted = AWrittenSpec();
  wanted.set_run_dir("/runs/two");
  wanted.set_name("two");
  wanted.mutable_data()->set_path("/elsewhere");
  wanted.mutable_checkpoint()->set_every_steps(7);
  wanted.mutable_checkpoint()->set_keep(2);
  wanted.mutable_evaluation()->set_every_steps(20);
  wanted.mutable_evaluation()->set_microbatches(4);
  wanted.mutable_schedule()->set_steps(200);
  wanted.mutable_schedule()->set_recompute(RECOMPUTE_ON);
  wanted.mutable_replan()->set_lost_worker(REPLAN_MODE_OFF);
  wanted.mutable_averaging()->set_clusters(1);
  std::vector<std::string> notes;
  const auto merged = MergeWithRecord(wanted, record, &notes);
  ASSERT_TRUE(merged.ok()) << merged.status();
  RunSpec expected = record.spec();
  expected.set_run_dir("/runs/two");
  expected.set_name("two");
  expected.mutable_data()->set_path("/elsewhere");
  expected.mutable_checkpoint()->set_every_steps(7);
  expected.mutable_checkpoint()->set_keep(2);
  expected.mutable_evaluation()->set_every_steps(20);
  expected.mutable_schedule()->set_recompute(RECOMPUTE_ON);
  expected.mutable_replan()->set_lost_worker(REPLAN_MODE_OFF);
  EXPECT_EQ(merged->SerializeAsString(), expected.SerializeAsString());
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].substr(0, 32), "schedule.steps 200 is not used: ");
  EXPECT_EQ(notes[1].substr(0, 37), "evaluation.microbatches 4 is not used");
}

// 300 of 100 steps with 3 updates each looked like 100 of 300 with one.
TEST(RunSpecRecordTest, PipedreamUpdates_AreRecordedAndNotGuessed) {
  RunSpec written = AWrittenSpec();
  written.mutable_schedule()->set_kind(SCHEDULE_KIND_PIPEDREAM);
  written.mutable_schedule()->set_microbatches(3);
  written.mutable_checkpoint()->set_every_steps(5);
  const RunRecord record = ARecord(written, 3);
  EXPECT_EQ(record.spec().schedule().steps(), 300u);
  EXPECT_EQ(record.spec().schedule().microbatches(), 1u);
  const RunSpec back = SpecAsWritten(record);
  EXPECT_EQ(back.schedule().steps(), 100u);
  EXPECT_EQ(back.schedule().microbatches(), 3u);
  EXPECT_EQ(back.optimizer().warmup_steps(), 10u);
  EXPECT_EQ(back.evaluation().every_steps(), 10u);
  EXPECT_EQ(back.checkpoint().every_steps(), 5u);
  EXPECT_EQ(ValidateRunSpec(back), absl::OkStatus());
  std::vector<std::string> notes;
  EXPECT_EQ(Merge(written, record, &notes), absl::OkStatus());
  EXPECT_EQ(Merge(back, record, &notes), absl::OkStatus());
  EXPECT_TRUE(notes.empty());
  written.mutable_schedule()->set_steps(150);
  EXPECT_EQ(Merge(written, record, &notes), absl::OkStatus());
  EXPECT_EQ(notes.size(), 1u);
}

}  // namespace
}  // namespace stagecoach
