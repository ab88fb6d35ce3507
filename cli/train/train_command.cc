#include "cli/train/train_command.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "cli/coordinator_client.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/run/run_report.h"
#include "cli/train/local_fleet.h"
#include "cli/train/run_follower.h"
#include "cli/train/run_text.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/link_profile.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

// What the processes may take to end: workers only close files after a run; 9 s of Ctrl-C's 10 are over by then.
constexpr absl::Duration kFleetGrace = absl::Seconds(1);
constexpr absl::Duration kSampleDeadline = absl::Seconds(60);  // a few hundred tokens of a small model take seconds
constexpr char kSampleTokens[] = "300";

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "stagecoach train: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

SubmitRequest RequestOf(const TrainOptions& options, const RunSpec& spec) {
  SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_workers(options.workers);
  request.set_stop_after(options.stop_after);
  request.set_resume(options.resume);
  if (!options.like.empty()) {
    request.set_like_run_dir(std::filesystem::absolute(options.like).lexically_normal().string());
  }
  return request;
}

FleetOptions FleetOf(const TrainOptions& options, const RunSpec& spec) {
  FleetOptions fleet;
  fleet.program_folder = ProgramFolder();
  fleet.run_dir = spec.run_dir();
  fleet.workers = options.workers;
  fleet.threads = spec.threads() > 0 ? spec.threads() : 1;
  fleet.links = options.links;
  fleet.link_seed = spec.has_seed() ? spec.seed() : 1;
  fleet.executor = options.executor;
  return fleet;
}

// The report, on the terminal and in files; a finished run's text sample with it.
void Report(const TrainOptions& options, const std::string& run_dir, const RunHistory& history) {
  ReportContext context{run_dir, options.links, {}};
  if (const auto manifest = ReadManifest(run_dir, history.latest().steps_done()); manifest.ok()) {
    context.losses.assign(manifest->losses().begin(), manifest->losses().end());
  }
  const auto report = MakeRunReport(history, context);
  // Files first: nobody may be reading the terminal.
  absl::Status status = WriteJsonFile(run_dir + "/report.json", report);
  if (!options.report.empty()) status.Update(WriteJsonFile(options.report, report));
  std::fputs(FormatRunReport(report).c_str(), stdout);
  std::fflush(stdout);
  if (!status.ok()) Complain(status, kExitFailed);
}

void PrintSample(const std::string& run_dir) {
  ChildOptions generate;
  generate.name = "generate";
  generate.program = ProgramFolder() + "/stagecoach-model";
  generate.arguments = {"generate", "--run-dir", run_dir, "--tokens", kSampleTokens};
  generate.log_path = run_dir + "/logs/generate.log";
  generate.output_path = run_dir + "/sample.txt";
  auto child = ChildProcess::Start(generate);
  if (!child.ok()) {
    Complain(child.status(), kExitFailed);
    return;
  }
  const auto end = (*child)->WaitFor(kSampleDeadline);
  if (!end.has_value() || !end->ok()) {
    std::fprintf(stderr, "stagecoach train: no sample of generated text (%s); see %s\n",
                 end.has_value() ? end->ToString().c_str() : "it takes too long", generate.log_path.c_str());
    return;
  }
  std::ifstream file(generate.output_path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::printf("\nSample of generated text (%s):\n%s\n", generate.output_path.c_str(), text.c_str());
}

// `followed`: how FollowRun ended.
int ExitOf(const absl::Status& followed, const std::string& run_dir, const RunHistory& history) {
  const RunStatus& status = history.latest();
  if (!followed.ok()) {
    const std::string kept = status.checkpoint_dir().empty()
                                 ? "no checkpoint was made"
                                 : absl::StrCat("the newest checkpoint is ", status.checkpoint_dir());
    return Complain(absl::Status(followed.code(), absl::StrCat(followed.message(), "; ", kept)), kExitFailed);
  }
  if (status.state() == RUN_STATE_FAILED) {
    return Complain(absl::AbortedError(absl::StrCat("the run failed: ", status.detail(),
                                                    "; the logs of all processes are in ", run_dir, "/logs")),
                    kExitFailed);
  }
  if (status.state() == RUN_STATE_STOPPED && status.checkpoint_dir().empty()) {
    return Complain(absl::AbortedError("stopped before a step was done; nothing was saved"), kExitFailed);
  }
  if (status.state() == RUN_STATE_STOPPED) {
    std::fprintf(stderr, "stopped after step %llu; `stagecoach train --resume --run-dir %s` goes on\n",
                 static_cast<unsigned long long>(status.steps_done()), run_dir.c_str());
  }
  return kExitOk;
}

// One command a run directory. The kernel drops the lock with the process, however it ends; children do not inherit it.
absl::Status LockRunDir(const std::string& run_dir) {
  const std::string path = run_dir + "/lock";
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0)
    return absl::InvalidArgumentError(absl::StrCat("--run-dir: cannot write ", path, ": ", strerror(errno)));
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  close(lock);
  return absl::FailedPreconditionError(
      absl::StrCat("--run-dir: another `stagecoach train` is using ", run_dir, "; wait for it or give another folder"));
}

absl::StatusOr<RunSpec> Prepare(const TrainOptions& options) {
  std::vector<std::string> notes;
  ASSIGN_OR_RETURN(RunSpec spec, BuildRunSpec(options, &notes));
  for (const std::string& note : notes) std::fprintf(stderr, "stagecoach train: %s\n", note.c_str());
  if (options.links != "none") RETURN_IF_ERROR(ParseLinkProfile(options.links).status());
  std::error_code error;
  std::filesystem::create_directories(spec.run_dir(), error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("--run-dir: cannot make ", spec.run_dir(), ": ", error.message()));
  }
  RETURN_IF_ERROR(LockRunDir(spec.run_dir()));
  RETURN_IF_ERROR(PrepareRunData(&spec));
  return spec;
}

}  // namespace

int RunTrain(const TrainOptions& options) {
  InstallInterruptHandler();
  const absl::StatusOr<RunSpec> spec = Prepare(options);
  if (!spec.ok())
    return Complain(spec.status(), absl::IsNotFound(spec.status()) ? kExitUsage : ExitCodeOf(spec.status()));
  const std::string run_dir = spec->run_dir();
  std::fprintf(stderr, "run directory %s\n", run_dir.c_str());

  auto fleet = LocalFleet::Start(FleetOf(options, *spec));
  if (!fleet.ok()) {
    return Complain(fleet.status(), InterruptRequested() ? kExitInterrupted : ExitCodeOf(fleet.status()));
  }
  RunHistory history;
  absl::Status followed;
  {
    CoordinatorClient client((*fleet)->coordinator_address());
    const absl::StatusOr<std::string> run = client.Submit(RequestOf(options, *spec));
    if (!run.ok()) return Complain(run.status(), ExitCodeOf(run.status()));
    ProgressPrinter printer(stderr, isatty(STDERR_FILENO) != 0);
    const FollowOptions follow{*run, [&] { return (*fleet)->CheckAlive(); }, /*interrupt_stops_run=*/true};
    followed = FollowRun(&client, follow, &printer, &history);
    printer.Finish(history);
  }
  (*fleet)->Stop(kFleetGrace);
  if (!history.empty() && history.latest().steps_done() > 0) Report(options, run_dir, history);
  const int exit_code = ExitOf(followed, run_dir, history);
  const bool finished = followed.ok() && history.latest().state() == RUN_STATE_FINISHED;
  if (finished && !options.no_sample && options.executor == "torch") PrintSample(run_dir);
  return exit_code;
}

}  // namespace stagecoach
