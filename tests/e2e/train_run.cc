#include "tests/e2e/train_run.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stagecoach::testing {
namespace {

std::string SpecText(const TinySpec& spec) {
  return absl::StrCat(
      "name: tiny\nseed: 3\nthreads: 1\nmodel:\n  architecture: ", spec.architecture, "\n  width: ", spec.width,
      "\n  layers: 4\n  heads: 2\n  dropout: ", spec.dropout, "\n  compression: ", spec.subspace ? "subspace" : "none",
      spec.subspace ? absl::StrCat("\n  rank: ", spec.rank, "\n  tail_layers: 1") : "",
      "\ndata:\n  path: ", PreparedData(), "\n  validation_fraction: 0.1\noptimizer:\n  kind: ", spec.optimizer,
      "\n  learning_rate: 0.003\n  clip_norm: ", spec.clip_norm, "\nschedule:\n  kind: ", spec.schedule,
      "\n  steps: ", spec.steps, "\n  microbatches: ", spec.microbatches, "\n  sequences: ", spec.sequences,
      "\n  sequence_tokens: ", spec.tokens, "\n  recompute: ", spec.recompute, "\n  j: ", spec.j,
      "\nwire:\n  format: ", spec.wire, "\nevaluation:\n  every_steps: ", spec.evaluation_every,
      "\n  microbatches: ", spec.evaluation_microbatches, "\ncheckpoint:\n  every_steps: ", spec.checkpoint_every,
      "\n  keep: 3\nreplan:\n  lost_worker: ", spec.replan, "\n",
      spec.clusters > 1 ? absl::StrCat("averaging:\n  clusters: ", spec.clusters, "\n  every_steps: ", spec.every_steps,
                                       "\n  delay_steps: ", spec.delay_steps, "\n  wire: ", spec.averaging_wire,
                                       "\n  outer: ", spec.outer, "\n")
                        : "");
}

nlohmann::json ReadJson(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(ReadWholeFile(path), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json::object();
}

// The two programs name these parts of their reports differently.
std::vector<std::pair<uint64_t, double>> EvaluationsOf(const nlohmann::json& report) {
  std::vector<std::pair<uint64_t, double>> evaluations;
  for (const nlohmann::json& one : report["evaluations"]) {
    const char* const key = one.contains("after_step") ? "after_step" : "steps";
    evaluations.push_back({one[key].get<uint64_t>(), one["loss"].get<double>()});
  }
  return evaluations;
}

std::vector<uint64_t> SkippedOf(const nlohmann::json& report) {
  return report[report.contains("skipped") ? "skipped" : "skipped_steps"].get<std::vector<uint64_t>>();
}

}  // namespace

const std::string& PreparedData() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    const std::string out = folder.File("data");
    const ProgramResult result = RunProgram("stagecoach-model", {"prepare", SourceFolder() + "/docs", "--output", out},
                                            std::chrono::seconds(60));
    EXPECT_EQ(result.exit_code, 0) << result.output << result.error;
    return out;
  }();
  return path;
}

TrainRun::TrainRun(const TemporaryFolder& folder, const std::string& name, const TinySpec& spec)
    : dir_(folder.File(name)),
      config_(folder.Write(name + ".yaml", SpecText(spec))),
      report_(folder.File(name + ".json")) {}

std::vector<std::string> TrainRun::Arguments(int workers, std::vector<std::string> more) const {
  std::vector<std::string> arguments = {
      "train",    "--config", config_,      "--run-dir", dir_, "--workers", absl::StrCat(workers),
      "--report", report_,    "--no-sample"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

nlohmann::json TrainRun::Train(int workers, std::vector<std::string> more, std::chrono::seconds deadline) {
  const ProgramResult result = RunProgram("stagecoach", Arguments(workers, std::move(more)), deadline);
  EXPECT_EQ(result.exit_code, 0) << result.output << result.error;
  const nlohmann::json report = Report();
  EXPECT_EQ(report.value("coordinator_tensor_bytes", -1), 0);
  return report;
}

std::unique_ptr<RunningProgram> TrainRun::Start(int workers, std::vector<std::string> more) const {
  return StartProgram("stagecoach", Arguments(workers, std::move(more)));
}

pid_t TrainRun::WorkerPid(const std::string& name) const {
  for (const pid_t pid : ProcessesWith(dir_ + "/")) {
    std::string command_line = ReadWholeFile(absl::StrCat("/proc/", pid, "/cmdline"));
    for (char& c : command_line) c = c == '\0' ? ' ' : c;
    if (command_line.find("stagecoach-worker") != std::string::npos &&
        command_line.find(absl::StrCat("--name ", name, " ")) != std::string::npos) {
      return pid;
    }
  }
  ADD_FAILURE() << "worker " << name << " does not run";
  return 0;
}

nlohmann::json TrainRun::Report() const { return ReadJson(report_); }

nlohmann::json TrainRun::Oracle() const {
  const std::string path = report_ + ".oracle";
  std::vector<std::string> arguments = {"oracle", "--run-dir", dir_, "--report", path};
  const nlohmann::json report = Report();
  if (report.contains("steps")) {
    arguments.push_back("--stop-after");
    arguments.push_back(absl::StrCat(report["steps"].get<uint64_t>()));
  }
  const ProgramResult result = RunProgram("stagecoach-model", arguments, std::chrono::seconds(120));
  EXPECT_EQ(result.exit_code, 0) << result.output << result.error;
  return ReadJson(path);
}

void ExpectSameBits(const nlohmann::json& report, const nlohmann::json& reference) {
  ASSERT_TRUE(report.contains("weight_hash") && reference.contains("weight_hash"));
  EXPECT_EQ(report["weight_hash"], reference["weight_hash"]);
  std::vector<std::pair<uint64_t, double>> expected = EvaluationsOf(reference);
  const uint64_t first_step = report.value("first_step", uint64_t{0});
  std::erase_if(expected, [&](const auto& evaluation) { return evaluation.first <= first_step; });
  EXPECT_EQ(EvaluationsOf(report), expected);
  EXPECT_EQ(SkippedOf(report), SkippedOf(reference));
  ASSERT_EQ(report["loss"].size(), reference["loss"].size());
  for (size_t step = 0; step < report["loss"].size(); ++step) {
    ASSERT_EQ(report["loss"][step].get<double>(), reference["loss"][step].get<double>()) << "step " << step;
  }
}

}  // namespace stagecoach::testing
