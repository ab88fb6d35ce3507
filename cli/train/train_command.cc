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
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/coordinator_client.h"
#include "cli/interrupt.h"
#include "cli/run/run_report.h"
#include "cli/train/local_fleet.h"
#include "cli/train/run_follower.h"
#include "cli/train/run_outcome.h"
#include "cli/train/run_text.h"
#include "common/exit_code.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

// What the processes may take to end: workers only close files after a run; 9 s of Ctrl-C's 10 are over by then.
constexpr absl::Duration kFleetGrace = absl::Seconds(1);
constexpr absl::Duration kSampleDeadline = absl::Seconds(60);  // a few hundred tokens of a small model take seconds
constexpr absl::Duration kInterruptTick = absl::Milliseconds(100);  // how late Ctrl-C may be noticed
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

FleetOptions FleetOf(const TrainOptions& options, const RunSpec& spec, LocalNetwork network) {
  FleetOptions fleet;
  fleet.program_folder = ProgramFolder();
  fleet.run_dir = spec.run_dir();
  fleet.network = std::move(network);
  fleet.threads = spec.threads() > 0 ? spec.threads() : 1;
  fleet.link_seed = spec.has_seed() ? spec.seed() : 1;
  fleet.executor = options.executor;
  return fleet;
}

// A finished run's generated text. Ctrl-C leaves it out.
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
  const absl::Time deadline = absl::Now() + kSampleDeadline;
  std::optional<ChildExit> end;
  while (!end.has_value() && !InterruptRequested() && absl::Now() < deadline) {
    end = (*child)->WaitFor(kInterruptTick);
  }
  if (!end.has_value() || !end->ok()) {
    const std::string why = end.has_value()        ? end->ToString()
                            : InterruptRequested() ? "interrupted"
                                                   : "it takes too long";
    std::fprintf(stderr, "stagecoach train: no sample of generated text (%s); see %s\n", why.c_str(),
                 generate.log_path.c_str());
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
    return Complain(absl::Status(followed.code(), absl::StrCat(followed.message(), "; ", kept)),
                    absl::IsCancelled(followed) ? kExitInterrupted : kExitFailed);
  }
  if (status.state() == RUN_STATE_FAILED) {
    return Complain(absl::AbortedError(absl::StrCat("the run failed: ", status.detail(),
                                                    "; the logs of all processes are in ", run_dir, "/logs")),
                    status.refused() ? kExitUsage : kExitFailed);
  }
  if (status.state() == RUN_STATE_STOPPED && status.checkpoint_dir().empty()) {
    return Complain(absl::AbortedError("stopped before a step was done; nothing was saved"), kExitInterrupted);
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
  return absl::ResourceExhaustedError(
      absl::StrCat("--run-dir: another `stagecoach train` is using ", run_dir, "; wait for it or give another folder"));
}

absl::StatusOr<RunSpec> Prepare(const TrainOptions& options) {
  std::vector<std::string> notes;
  ASSIGN_OR_RETURN(RunSpec spec, BuildRunSpec(options, &notes));
  for (const std::string& note : notes) std::fprintf(stderr, "stagecoach train: %s\n", note.c_str());
  if (!options.report.empty()) RETURN_IF_ERROR(CheckWritable("--report", options.report));
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

int RunTrain(const TrainOptions& given) {
  InstallInterruptHandler();
  absl::StatusOr<LocalNetwork> network = ReadLocalNetwork(given.links, given.workers);
  if (!network.ok()) return Complain(network.status(), kExitUsage);
  TrainOptions options = given;
  options.workers = static_cast<uint32_t>(network->workers.size());
  const absl::StatusOr<RunSpec> spec = Prepare(options);
  if (!spec.ok()) return Complain(spec.status(), ExitCodeOf(spec.status()));
  const std::string run_dir = spec->run_dir();
  std::fprintf(stderr, "run directory %s\n", run_dir.c_str());

  auto fleet = LocalFleet::Start(FleetOf(options, *spec, *std::move(network)));
  if (!fleet.ok()) {
    return Complain(fleet.status(), ExitCodeOf(fleet.status()));
  }
  RunHistory history;
  absl::Status followed;
  {
    CoordinatorClient client((*fleet)->coordinator_address());
    const absl::StatusOr<std::string> run = client.Submit(RequestOf(options, *spec));
    if (!run.ok()) return Complain(run.status(), ExitCodeOf(run.status()));
    ProgressPrinter printer(stderr, isatty(STDERR_FILENO) != 0);
    const FollowOptions follow{*run, [&](const auto& without) { return (*fleet)->CheckAlive(without); },
                               /*interrupt_stops_run=*/true};
    followed = FollowRun(&client, follow, &printer, &history);
    printer.Finish(history);
  }
  const std::string stopped = (*fleet)->StoppedProcess();
  (*fleet)->Stop(kFleetGrace);
  std::vector<std::string> files = {run_dir + "/report.json"};
  if (!options.report.empty()) files.push_back(options.report);
  const absl::Status reported = ReportRun(history, followed, options.links, files);
  if (!reported.ok()) Complain(reported, kExitFailed);
  const int exit_code = ExitOf(followed, run_dir, history);
  if (exit_code != kExitOk && !stopped.empty()) Complain(absl::UnavailableError(stopped), exit_code);
  const bool finished = followed.ok() && history.latest().state() == RUN_STATE_FINISHED;
  if (finished && !options.no_sample && options.executor == "torch") PrintSample(run_dir);
  return exit_code;
}

}  // namespace stagecoach
