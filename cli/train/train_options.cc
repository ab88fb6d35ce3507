#include "cli/train/train_options.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/run_spec/run_spec_flags.h"
#include "common/run_spec/run_spec_record.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/run_spec/run_spec_yaml.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMostWorkersToChooseFor = 64;  // RunMachine::kMostMeasuredTogether

// runs/NAME-1, runs/NAME-2, ...: a new folder each time.
std::string NewRunDir(const std::string& name) {
  for (int number = 1;; ++number) {
    const std::string path = absl::StrCat("runs/", name.empty() ? "run" : name, "-", number);
    if (!fs::exists(path)) return path;
  }
}

absl::Status Override(RunSpec* spec, absl::string_view flag, absl::string_view key,
                      const std::optional<std::string>& value) {
  if (!value.has_value()) return absl::OkStatus();
  const absl::Status status = ApplyOverride(spec, key, *value);
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

// Folder of the run that is continued or copied; empty: a new run.
std::string EarlierRun(const TrainOptions& options) { return options.resume ? options.run_dir : options.like; }

// The file, or the record that the run continues or copies.
absl::StatusOr<RunSpec> BaseSpec(const TrainOptions& options, SpecLines* lines) {
  if (!options.config.empty()) return ReadRunSpecFile(options.config, lines);
  if (EarlierRun(options).empty()) {
    return absl::InvalidArgumentError("--config FILE is missing; examples/runs/tiny.yaml is a small one to start from");
  }
  ASSIGN_OR_RETURN(const RunRecord record, ReadRunRecord(EarlierRun(options)));
  return SpecAsWritten(record);
}

absl::Status CheckRunDir(const TrainOptions& options, const std::string& run_dir) {
  const bool has_run = fs::exists(run_dir + "/record.json");
  // A run that ended before its first checkpoint left nothing worth keeping: the folder may be used again.
  if (has_run && !options.resume && !CompleteCheckpoints(run_dir).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--run-dir: ", run_dir, " holds a run already; --resume continues it, another --run-dir starts a new one"));
  }
  if (!has_run && options.resume) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: there is no run in ", run_dir, " (record.json is missing); give its --run-dir"));
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const TrainOptions& options) {
  if (options.executor != "torch" && options.executor != "fake" && !options.executor.starts_with("fake:")) {
    return absl::InvalidArgumentError("--executor: allowed torch, fake, fake:FORWARD_MS/BACKWARD_MS");
  }
  if (options.resume && options.run_dir.empty()) {
    return absl::InvalidArgumentError("--resume: which run? Give its --run-dir");
  }
  if (!options.like.empty() && !fs::exists(options.like + "/record.json")) {
    return absl::InvalidArgumentError(absl::StrCat("--like: there is no run in ", options.like));
  }
  return absl::OkStatus();
}

absl::Status CheckClusters(const TrainOptions& options, const RunSpec& spec) {
  const uint32_t clusters = spec.averaging().clusters();
  if (spec.averaging().choose_clusters()) {
    if (options.workers <= kMostWorkersToChooseFor) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--workers: at most ", kMostWorkersToChooseFor,
                                                   " with --clusters auto (every pair is measured), got ",
                                                   options.workers, "; give the number of clusters instead"));
  }
  if (clusters > options.workers) {
    return absl::InvalidArgumentError(absl::StrCat(options.clusters ? "--clusters" : "averaging.clusters", ": ",
                                                   clusters, " clusters need at least as many --workers, got ",
                                                   options.workers));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunSpec> BuildRunSpec(const TrainOptions& options, std::vector<std::string>* notes) {
  RETURN_IF_ERROR(CheckFlags(options));
  SpecLines lines;
  ASSIGN_OR_RETURN(RunSpec spec, BaseSpec(options, &lines));
  RETURN_IF_ERROR(Override(&spec, "--steps", "schedule.steps", options.steps));
  RETURN_IF_ERROR(Override(&spec, "--seed", "seed", options.seed));
  RETURN_IF_ERROR(Override(&spec, "--threads", "threads", options.threads));
  RETURN_IF_ERROR(Override(&spec, "--schedule", "schedule.kind", options.schedule));
  RETURN_IF_ERROR(Override(&spec, "--j", "schedule.j", options.j == "auto" ? "-1" : options.j));
  RETURN_IF_ERROR(Override(&spec, "--wire", "wire.format", options.wire));
  if (options.clusters == "auto") {
    spec.mutable_averaging()->set_choose_clusters(true);
  } else if (options.clusters) {
    RETURN_IF_ERROR(Override(&spec, "--clusters", "averaging.clusters", options.clusters));
    spec.mutable_averaging()->set_choose_clusters(false);
  }
  if (!options.data.empty()) {
    spec.mutable_data()->set_path(options.data);
  } else if (!EarlierRun(options).empty()) {
    // The tokens of the earlier run, wherever the file's text has gone since.
    ASSIGN_OR_RETURN(const RunRecord record, ReadRunRecord(EarlierRun(options)));
    spec.mutable_data()->set_path(record.spec().data().path());
  }
  if (!spec.data().path().empty()) {
    if (!fs::exists(spec.data().path())) {
      return absl::InvalidArgumentError(absl::StrCat(options.data.empty() ? "data.path" : "--data",
                                                     ": there is no file or folder ", spec.data().path()));
    }
    spec.mutable_data()->set_path(fs::absolute(spec.data().path()).lexically_normal().string());
  }
  std::string run_dir = !options.run_dir.empty()                           ? options.run_dir
                        : options.config.empty() || spec.run_dir().empty() ? NewRunDir(spec.name())
                                                                           : spec.run_dir();
  run_dir = fs::absolute(run_dir).lexically_normal().string();
  if (run_dir.ends_with('/')) run_dir.pop_back();
  RETURN_IF_ERROR(CheckRunDir(options, run_dir));
  spec.set_run_dir(run_dir);
  if (!EarlierRun(options).empty()) {
    ASSIGN_OR_RETURN(const RunRecord record, ReadRunRecord(EarlierRun(options)));
    ASSIGN_OR_RETURN(spec, MergeWithRecord(spec, record, notes));
  }
  RETURN_IF_ERROR(PlaceSpecError(ValidateRunSpec(spec), options.config, lines));
  RETURN_IF_ERROR(CheckClusters(options, spec));
  return spec;
}

}  // namespace stagecoach
