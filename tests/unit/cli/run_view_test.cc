// What a run looks like: the progress line, the printer, the report.
#include <gtest/gtest.h>

#include <cstdio>

#include "cli/run/progress_line.h"
#include "cli/run/run_history.h"
#include "cli/run/run_report.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

// Two stages, 10 of 40 steps of 8 microbatches of 2 x 32 tokens (512 a step), one evaluation of 4 microbatches (256).
RunStatus ARunStatus() {
  RunStatus status;
  status.set_run("tiny-1");
  status.set_state(RUN_STATE_RUNNING);
  status.set_steps_done(10);
  status.set_tokens_per_second(512);
  status.set_elapsed_seconds(10);
  RunSpec& spec = *status.mutable_record()->mutable_spec();
  spec.mutable_model()->set_width(64);
  spec.mutable_schedule()->set_steps(40);
  spec.mutable_schedule()->set_microbatches(8);
  spec.mutable_schedule()->set_sequences(2);
  spec.mutable_schedule()->set_sequence_tokens(32);
  spec.mutable_evaluation()->set_microbatches(4);
  JEntry& warmup = *status.mutable_record()->add_j_table();
  warmup.set_j(0);
  JEntry& main = *status.mutable_record()->add_j_table();
  main.set_from_step(4);
  main.set_j(2);
  status.mutable_record()->set_bigram_loss(2.5);
  Plan& plan = *status.mutable_plan();
  plan.set_epoch(1);
  plan.add_stages()->set_end_unit(3);
  plan.add_stages()->set_first_unit(3);
  plan.mutable_prediction()->set_tokens_per_second(530);
  plan.mutable_prediction()->set_compute_bound_tokens_per_second(1024);
  plan.mutable_prediction()->set_window(3);
  for (uint64_t step = 0; step < 10; ++step) {
    StepRow& row = *status.add_steps();
    row.set_step(step);
    row.set_loss(5 - 0.1 * static_cast<double>(step));
  }
  EvaluationRow& evaluation = *status.add_evaluations();
  evaluation.set_after_step(10);
  evaluation.set_loss(2.25);
  for (uint32_t stage = 0; stage < 2; ++stage) {
    WorkerRow& worker = *status.add_workers();
    worker.set_name(stage == 0 ? "w0" : "w1");
    worker.set_assigned(true);
    worker.set_stage(stage);
    worker.set_first_unit(stage == 0 ? 0 : 3);
    worker.set_end_unit(stage == 0 ? 3 : 6);
    worker.set_parameters(1000000);
    (*worker.mutable_counters()->mutable_waiting_seconds())["input"] = 1.5;
    (*worker.mutable_counters()->mutable_staleness())[0] = 60;
    (*worker.mutable_counters()->mutable_staleness())[1] = 20;
  }
  status.mutable_workers(0)->mutable_counters()->set_forward_wire_bytes((5120 + 256) * 36);
  status.mutable_workers(1)->mutable_counters()->set_backward_wire_bytes(5120 * 40);
  return status;
}

RunHistory HistoryOf(const RunStatus& status) {
  RunHistory history;
  history.Add(status);
  return history;
}

TEST(ProgressLineTest, RunningRun_ShowsEverything) {
  EXPECT_EQ(ProgressLine(HistoryOf(ARunStatus())),
            "step 10/40  loss 4.1000  512 tokens/s  50.0 % of ideal  76.0 B/token  30 s left");
}

TEST(ProgressLineTest, BeforeTheFirstStep_ShowsWhatItWaitsFor) {
  RunStatus status;
  status.set_state(RUN_STATE_WAITING);
  status.set_detail("2 of 4 workers");
  EXPECT_EQ(ProgressLine(HistoryOf(status)), "waiting: 2 of 4 workers");
}

TEST(ProgressLineTest, EndedRun_ShowsStateAndNoTimeLeft) {
  RunStatus status = ARunStatus();
  status.set_state(RUN_STATE_STOPPED);
  const std::string line = ProgressLine(HistoryOf(status));
  EXPECT_EQ(line.find(" left"), std::string::npos);
  EXPECT_NE(line.find("stopped"), std::string::npos);
}

TEST(ProgressLineTest, TimeLeft_InTwoUnits) {
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(5)), "5 s");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(65)), "1 min 5 s");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(3720)), "1 h 2 min");
}

TEST(ProgressPrinterTest, WithoutTerminal_PrintsPlainLinesEveryFewSeconds) {
  std::FILE* file = std::tmpfile();
  ProgressPrinter printer(file, /*is_terminal=*/false);
  RunHistory history = HistoryOf(ARunStatus());
  const absl::Time start = absl::UnixEpoch();
  printer.Show(history, start);
  for (int tenth = 1; tenth <= 60; ++tenth) {  // six seconds, something new every time
    RunStatus status = ARunStatus();
    status.set_steps_done(10 + static_cast<uint64_t>(tenth) / 4);
    history.Add(status);
    printer.Show(history, start + absl::Milliseconds(100 * tenth));
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(RunHistoryTest, LaterMessages_AddRowsAndKeepWorkers) {
  RunHistory history = HistoryOf(ARunStatus());
  RunStatus next;
  next.set_state(RUN_STATE_FINISHED);
  next.set_steps_done(11);
  next.add_steps()->set_step(10);
  history.Add(next);
  EXPECT_EQ(history.steps().size(), 11u);
  EXPECT_NE(history.WorkerOfStage(0, 1), nullptr);
  EXPECT_TRUE(history.ended());
}

TEST(RunReportTest, Json_HasEveryKeyWithItsValue) {
  const auto report = MakeRunReport(HistoryOf(ARunStatus()), {"/runs/tiny-1", "80mbit/50ms", {}});
  for (const char* key : {"weight_hash",
                          "steps",
                          "tokens",
                          "loss",
                          "validation_loss",
                          "bigram_loss",
                          "tokens_per_second",
                          "predicted_tokens_per_second",
                          "compute_bound_tokens_per_second",
                          "microbatches_per_step",
                          "j",
                          "window",
                          "phi",
                          "staleness_histogram",
                          "wire_bytes_per_token",
                          "dense_bf16_bytes_per_token",
                          "coordinator_tensor_bytes",
                          "skipped_steps",
                          "workers",
                          "failed_checkpoints",
                          "checkpoint_error"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_EQ(report["tokens"], 5120);
  EXPECT_EQ(report["loss"].size(), 10u);
  EXPECT_EQ(report["j"], 2);  // of the main part, not of the warm-up
  EXPECT_EQ(report["phi"], 0.25);
  EXPECT_EQ(report["validation_loss"], 2.25);
  EXPECT_EQ(report["dense_bf16_bytes_per_token"], 128);
  EXPECT_EQ(report["staleness_histogram"].dump(), R"({"0":60,"1":20})");
  EXPECT_EQ(report["wire_bytes_per_token"][0]["cut"], 3);
  EXPECT_DOUBLE_EQ(report["wire_bytes_per_token"][0]["forward"], 36);
  EXPECT_DOUBLE_EQ(report["wire_bytes_per_token"][0]["backward"], 40);
  EXPECT_EQ(report["workers"][1]["layers"].dump(), "[3,6]");
  EXPECT_EQ(report["workers"][0]["waiting_seconds"]["input"], 1.5);
}

TEST(RunReportTest, Losses_OfTheWholeScheduleComeFromTheCheckpoint) {
  const auto report = MakeRunReport(HistoryOf(ARunStatus()), {"/r", "none", {3, 2, 1}});
  EXPECT_EQ(report["loss"].dump(), "[3.0,2.0,1.0]");
}

TEST(RunReportTest, EmptyRun_HasNullsInsteadOfNumbers) {
  const auto report = MakeRunReport(RunHistory(), {"/r", "none", {}});
  EXPECT_TRUE(report["validation_loss"].is_null());
  EXPECT_TRUE(report["bigram_loss"].is_null());
  EXPECT_FALSE(FormatRunReport(report).empty());
}

TEST(RunReportTest, Text_NamesBigramAndHash) {
  RunStatus status = ARunStatus();
  status.set_weight_hash("abc123");
  const std::string text = FormatRunReport(MakeRunReport(HistoryOf(status), {"/runs/tiny-1", "none", {}}));
  EXPECT_NE(text.find("2.2500  (bigram model of the same text: 2.5000, beaten)"), std::string::npos) << text;
  EXPECT_NE(text.find("abc123"), std::string::npos);
}

TEST(RunReportTest, File_IsReplacedAsAWhole) {
  testing::TemporaryFolder folder;
  folder.Write("report.json", "old");
  ASSERT_TRUE(WriteJsonFile(folder.File("report.json"), {{"steps", 3}}).ok());
  EXPECT_EQ(testing::ReadWholeFile(folder.File("report.json")), "{\n  \"steps\": 3\n}\n");
  EXPECT_FALSE(WriteJsonFile(folder.File("nowhere/report.json"), {}).ok());
}

TEST(RunReportTest, Replan_ForgetsTheStepsThatComeAgainAndIsListed) {
  RunHistory history;
  history.Add(ARunStatus());
  RunStatus next = ARunStatus();
  next.clear_steps();
  next.clear_evaluations();
  next.mutable_plan()->set_epoch(2);
  next.set_steps_done(4);
  ReplanRow& row = *next.add_replans();
  row.set_from_step(4);
  row.set_recomputed_steps(6);
  row.set_lost_worker("w2");
  row.set_reason("worker w2 (stage 2) was lost: its stream ended");
  history.Add(next);
  EXPECT_EQ(history.steps().size(), 4u);
  EXPECT_TRUE(history.evaluations().empty());
  EXPECT_EQ(history.TokensTrained(), 0u);
  const nlohmann::ordered_json report = MakeRunReport(history, {"/runs/tiny", "none", {}});
  EXPECT_EQ(report["recomputed_steps"], 6);
  ASSERT_EQ(report["replans"].size(), 1u);
  EXPECT_EQ(report["replans"][0]["lost_worker"], "w2");
  EXPECT_NE(FormatRunReport(report).find("from step 4, 6 steps done again: worker w2"), std::string::npos);
}

}  // namespace
}  // namespace stagecoach
