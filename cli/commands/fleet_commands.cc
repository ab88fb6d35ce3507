#include "cli/commands/fleet_commands.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/coordinator_client.h"
#include "cli/interrupt.h"
#include "cli/run/progress_line.h"
#include "cli/run/run_report.h"
#include "cli/train/run_follower.h"
#include "cli/train/run_outcome.h"
#include "cli/train/run_text.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/exit_code.h"
#include "common/run_spec/run_spec_record.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/run_spec/run_spec_yaml.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

int Complain(const char* command, const absl::Status& status) {
  std::fprintf(stderr, "stagecoach %s: %s\n", command, std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

std::string Absolute(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

absl::StatusOr<RunSpec> ReadValidSpec(const std::string& path) {
  SpecLines lines;
  ASSIGN_OR_RETURN(RunSpec spec, ReadRunSpecFile(path, &lines));
  if (spec.run_dir().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": run_dir: required; a folder that every worker reaches by this path"));
  }
  RETURN_IF_ERROR(PlaceSpecError(ValidateRunSpec(spec), path, lines));
  // Relative paths are those of whoever wrote them, not of the folders where coordinator and workers were started.
  spec.set_run_dir(Absolute(spec.run_dir()));
  spec.mutable_data()->set_path(Absolute(spec.data().path()));
  return spec;
}

// Text is refused where it can be seen from here; workers may see another file system than this machine.
absl::Status CheckIsPrepared(const std::string& data) {
  const bool is_text = std::filesystem::is_regular_file(data)
                           ? !data.ends_with(".bin")
                           : std::filesystem::is_directory(data) && !IsPreparedData(data);
  if (!is_text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data.path: ", data, " is text; `stagecoach-model prepare ", data,
                                                 " --output FOLDER` makes token shards of it, give that folder"));
}

// Data, and what contradicts the record, is said at once where the folder can be read from here; the coordinator checks
// it too.
absl::Status CheckInputs(const SubmitOptions& options, const RunSpec& spec) {
  if (!options.resume && options.like.empty()) return CheckIsPrepared(spec.data().path());
  const absl::StatusOr<RunRecord> record = ReadRunRecord(options.resume ? spec.run_dir() : options.like);
  std::vector<std::string> notes;  // the coordinator's plan has them
  return record.ok() ? MergeWithRecord(spec, *record, &notes).status() : absl::OkStatus();
}

int Watch(CoordinatorClient* client, const std::string& run, const std::string& report_file) {
  InstallInterruptHandler();
  RunHistory history;
  ProgressPrinter printer(stderr, isatty(STDERR_FILENO) != 0);
  const absl::Status followed = FollowRun(client, {run, nullptr, /*interrupt_stops_run=*/false}, &printer, &history);
  printer.Finish(history);
  if (absl::IsCancelled(followed)) {  // Ctrl-C ends the watching alone
    std::fprintf(stderr, "%s\n", std::string(followed.message()).c_str());
    return kExitOk;
  }
  std::vector<std::string> files;
  if (!report_file.empty()) files.push_back(report_file);
  const absl::Status reported = ReportRun(history, followed, "as they are", files);
  if (!followed.ok()) return Complain("submit", followed);
  if (!reported.ok()) return Complain("submit", reported);
  if (history.latest().state() != RUN_STATE_FAILED) return kExitOk;
  Complain("submit", absl::AbortedError(absl::StrCat("the run failed: ", history.latest().detail())));
  return history.latest().refused() ? kExitUsage : kExitFailed;
}

void PrintFleetTable(const FleetStatusReply& fleet) {
  std::printf("%-16s %-22s %-8s %-12s %-6s %-8s %-8s %s\n", "WORKER", "ADDRESS", "DEVICE", "STATE", "STAGE", "UNITS",
              "MIB", "MS A MICROBATCH (PLAN)");
  for (const WorkerRow& worker : fleet.workers()) {
    const std::string stage = worker.assigned() ? absl::StrCat(worker.stage()) : "-";
    const std::string units = worker.assigned() ? absl::StrCat(worker.first_unit(), "-", worker.end_unit() - 1) : "-";
    const std::string speed =
        worker.microbatch_seconds() > 0
            ? absl::StrFormat("%.1f (%.1f)%s", worker.microbatch_seconds() * 1e3,
                              worker.planned_microbatch_seconds() * 1e3, worker.slow() ? " slow" : "")
            : "-";
    std::printf("%-16s %-22s %-8s %-12s %-6s %-8s %-8llu %s\n", worker.name().c_str(), worker.address().c_str(),
                worker.device().c_str(), worker.state().c_str(), stage.c_str(), units.c_str(),
                static_cast<unsigned long long>(worker.counters().resident_bytes() >> 20), speed.c_str());
  }
  for (const RunStatus& status : fleet.runs()) {
    RunHistory history;
    history.Add(status);
    std::printf("\nrun %s: %s\n", status.run().c_str(), ProgressLine(history).c_str());
    if (status.state() == RUN_STATE_FAILED) std::printf("  %s\n", status.detail().c_str());
    for (const ReplanRow& replan : status.replans()) {
      std::printf("  planned anew from step %llu, %llu steps done again: %s\n",
                  static_cast<unsigned long long>(replan.from_step()),
                  static_cast<unsigned long long>(replan.recomputed_steps()), replan.reason().c_str());
    }
    if (status.failed_checkpoints() > 0) {
      std::printf("  %llu checkpoints were given up; the newest: %s\n",
                  static_cast<unsigned long long>(status.failed_checkpoints()), status.checkpoint_error().c_str());
    }
  }
  if (fleet.earlier_runs_size() > 0) std::printf("\nBefore the coordinator was started:\n");
  for (const EarlierRun& run : fleet.earlier_runs()) {
    std::printf("run %s: %s, %llu steps%s%s\n", run.run().c_str(), StateWord(run.state()).c_str(),
                static_cast<unsigned long long>(run.steps_done()), run.detail().empty() ? "" : ": ",
                run.detail().c_str());
  }
}

}  // namespace

int RunSubmit(const SubmitOptions& options) {
  if (!options.report.empty()) {
    if (const absl::Status writable = CheckWritable("--report", options.report); !writable.ok()) {
      return Complain("submit", writable);
    }
  }
  const absl::StatusOr<RunSpec> spec = ReadValidSpec(options.config);
  if (!spec.ok()) return Complain("submit", spec.status());
  if (const absl::Status same = CheckInputs(options, *spec); !same.ok()) return Complain("submit", same);
  SubmitRequest request;
  *request.mutable_spec() = *spec;
  request.set_workers(options.workers);
  request.set_stop_after(options.stop_after);
  request.set_resume(options.resume);
  if (!options.like.empty()) request.set_like_run_dir(Absolute(options.like));
  CoordinatorClient client(options.coordinator);
  const absl::StatusOr<std::string> run = client.Submit(request);
  if (!run.ok()) return Complain("submit", run.status());
  std::printf("%s\n", run->c_str());
  std::fflush(stdout);
  return options.watch ? Watch(&client, *run, options.report) : kExitOk;
}

int RunStatusCommand(const StatusOptions& options) {
  CoordinatorClient client(options.coordinator);
  const absl::StatusOr<FleetStatusReply> fleet = client.FleetStatus();
  if (!fleet.ok()) return Complain("status", fleet.status());
  if (options.format == "table") {
    PrintFleetTable(*fleet);
    return kExitOk;
  }
  google::protobuf::util::JsonPrintOptions format;
  format.add_whitespace = true;
  format.always_print_primitive_fields = true;
  format.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(*fleet, &text, format).ok()) {
    return Complain("status", absl::InternalError("the answer does not convert to JSON"));
  }
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int RunStop(const StopOptions& options) {
  CoordinatorClient client(options.coordinator);
  std::string run = options.run;
  if (run.empty()) {
    const absl::StatusOr<FleetStatusReply> fleet = client.FleetStatus();
    if (!fleet.ok()) return Complain("stop", fleet.status());
    for (const RunStatus& status : fleet->runs()) {
      RunHistory history;
      history.Add(status);
      if (!history.ended()) run = status.run();
    }
    if (run.empty()) return Complain("stop", absl::FailedPreconditionError("no run is going on there"));
  }
  const absl::Status status = client.Stop(run);
  if (!status.ok()) return Complain("stop", status);
  std::printf("%s stops after this step, with a checkpoint\n", run.c_str());
  return kExitOk;
}

}  // namespace stagecoach
