#include "cli/train/run_follower.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/interrupt.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);  // how late a dead process or Ctrl-C may be noticed
constexpr absl::Duration kStopGrace = absl::Seconds(8);  // of 10 s that Ctrl-C may take; the rest is for the processes
// After a worker has died the coordinator says what that means for the run (it needs its heartbeat deadline at most).
constexpr absl::Duration kFailureGrace = absl::Seconds(5);

constexpr absl::Duration kReapGrace = absl::Seconds(1);

class Follower {
 public:
  Follower(CoordinatorClient* client, const FollowOptions& options, ProgressPrinter* printer, RunHistory* history)
      : client_(client), options_(options), printer_(printer), history_(history) {}

  absl::Status Run() {
    const auto watch = client_->Watch(options_.run);
    for (;;) {
      for (const RunStatus& status : watch->Take(kTick)) history_->Add(status);
      ShowReplans();
      ShowPlan();
      ShowFailedCheckpoints();
      printer_->Show(*history_, absl::Now());
      if (history_->ended()) return absl::OkStatus();
      if (const auto end = watch->End(); end.has_value()) return ExplainEnd(*end);
      if (const absl::Status status = CheckInterrupt(); !status.ok()) return status;
      if (const absl::Status status = CheckProcesses(); !status.ok()) return status;
    }
  }

 private:
  void ShowPlan() {
    if (plan_epoch_ == history_->latest().plan().epoch() || history_->latest().plan().explanation().empty()) return;
    plan_epoch_ = history_->latest().plan().epoch();
    for (const std::string& line : history_->PlanLines()) printer_->Note(line);
  }

  void ShowReplans() {
    const auto& replans = history_->latest().replans();
    for (; replans_ < replans.size(); ++replans_) {
      without_.insert(replans[replans_].lost_worker());
      printer_->Note(absl::StrCat(replans[replans_].reason(),
                                  "; the run goes on without it from the checkpoint of step ",
                                  replans[replans_].from_step()));
    }
  }

  void ShowFailedCheckpoints() {
    const RunStatus& status = history_->latest();
    if (failed_checkpoints_ == status.failed_checkpoints()) return;
    failed_checkpoints_ = status.failed_checkpoints();
    printer_->Note(absl::StrCat("a checkpoint was given up, the run goes on: ", status.checkpoint_error()));
  }

  absl::Status CheckInterrupt() {
    if (!InterruptRequested()) return absl::OkStatus();
    if (!options_.interrupt_stops_run) {
      return absl::CancelledError(absl::StrCat("run ", options_.run, " goes on; `stagecoach stop` ends it"));
    }
    if (stop_deadline_ == absl::InfiniteFuture()) {
      stop_deadline_ = absl::Now() + kStopGrace;
      printer_->Note("stopping: finishing the step and writing a checkpoint (Ctrl-C again ends at once)");
      if (const absl::Status status = client_->Stop(options_.run); !status.ok()) {
        return absl::CancelledError(absl::StrCat("interrupted, and the run could not be stopped: ", status.message()));
      }
    }
    if (absl::Now() > stop_deadline_) {
      return absl::CancelledError(absl::StrCat("interrupted; the pipeline did not drain within ",
                                               absl::FormatDuration(kStopGrace), ", so nothing new was written"));
    }
    return absl::OkStatus();
  }

  // The connection closes before the process that closed it can be reaped.
  absl::Status ExplainEnd(const absl::Status& end) const {
    const absl::Time deadline = absl::Now() + kReapGrace;
    while (options_.check_alive && absl::Now() < deadline) {
      if (const absl::Status death = options_.check_alive(without_); !death.ok()) return death;
      absl::SleepFor(kTick);
    }
    return absl::UnavailableError(absl::StrCat("the coordinator stopped reporting: ", end.message()));
  }

  absl::Status CheckProcesses() {
    if (!options_.check_alive) return absl::OkStatus();
    // Asked again each time: the run may go on without what has died.
    const absl::Status death = options_.check_alive(without_);
    if (death.ok()) {
      death_deadline_ = absl::InfiniteFuture();
    } else if (death_deadline_ == absl::InfiniteFuture()) {
      death_deadline_ = absl::Now() + kFailureGrace;
    }
    return absl::Now() > death_deadline_ ? death : absl::OkStatus();
  }

  CoordinatorClient* const client_;
  const FollowOptions& options_;
  ProgressPrinter* const printer_;
  RunHistory* const history_;
  uint64_t plan_epoch_ = 0, failed_checkpoints_ = 0;
  absl::Time stop_deadline_ = absl::InfiniteFuture();
  int replans_ = 0;
  std::set<std::string> without_;
  absl::Time death_deadline_ = absl::InfiniteFuture();
};

}  // namespace

absl::Status FollowRun(CoordinatorClient* client, const FollowOptions& options, ProgressPrinter* printer,
                       RunHistory* history) {
  return Follower(client, options, printer, history).Run();
}

}  // namespace stagecoach
