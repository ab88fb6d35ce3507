// The coordinator's loop: worker sessions, membership, runs, watchers. Knows messages, not gRPC.
//
//   session opened -> Register -> messages ... -> closed (stream broke, silent too long, replaced, malformed message)
//
// Threading: confined to the coordinator loop.
// Errors: Submit: INVALID_ARGUMENT (spec), ALREADY_EXISTS, RESOURCE_EXHAUSTED (too many runs). Stop, Watch: NOT_FOUND.
// A session is closed with INVALID_ARGUMENT (malformed), ALREADY_EXISTS (the name of a live worker), ABORTED
// (replaced), DEADLINE_EXCEEDED (silent).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/event_loop.h"
#include "coordinator/domain/membership.h"
#include "coordinator/domain/run_machine.h"
#include "coordinator/service/run_driver.h"
#include "coordinator/store/run_journal.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

// The coordinator's end of a worker's stream. Loop only.
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;
  virtual void Send(const CoordinatorMessage& message) = 0;
  virtual void Close(const absl::Status& status) = 0;  // once; nothing is sent afterwards
};

// Someone who follows a run. Loop only.
class RunWatcher {
 public:
  virtual ~RunWatcher() = default;
  virtual bool busy() const = 0;  // the last status is still under way
  virtual void Send(const RunStatus& status) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

class FleetControl {
 public:
  struct Options {
    Membership::Options membership;
    RunMachine::Options run_limits;
    Duration tick = std::chrono::milliseconds(250);  // also the least time between two statuses of a watch
    uint64_t term = 1;
    std::string version;
    std::vector<JournalRunSummary> earlier_runs;  // of earlier lives of the coordinator
  };

  FleetControl(const Options& options, EventLoop* loop, EventLoop* store, RunJournal* journal);

  // Called every options.tick.
  void OnTick();

  void OnMessage(const std::shared_ptr<WorkerSession>& session, const WorkerMessage& message);
  void OnClosed(const std::shared_ptr<WorkerSession>& session, absl::string_view reason);

  absl::StatusOr<std::string> Submit(const SubmitRequest& request);
  absl::Status Stop(const std::string& run);
  absl::Status Watch(const std::string& run, std::shared_ptr<RunWatcher> watcher);
  void Unwatch(const RunWatcher* watcher);
  FleetStatusReply Status() const;

  // Closes everything; nothing is accepted afterwards.
  void Shutdown();

 private:
  struct Session {
    std::string worker;  // empty until it has registered
    uint64_t incarnation = 0;
  };
  struct Watched {
    std::shared_ptr<RunWatcher> watcher;
    std::shared_ptr<RunDriver> run;
    WatchCursor cursor;
    bool first = true;
  };

  void OnRegister(const std::shared_ptr<WorkerSession>& session, const Register& message);
  void Drop(const std::shared_ptr<WorkerSession>& session, const absl::Status& status);
  void LoseWorker(const std::string& worker, absl::string_view reason);
  void UpdateWatchers();
  void ForgetOldRuns();
  std::vector<std::string> FreeWorkers() const;
  std::shared_ptr<RunDriver> RunOf(const std::string& worker) const;
  void SendTo(const std::string& worker, const CoordinatorMessage& message);

  const Options options_;
  EventLoop* const loop_;
  EventLoop* const store_;
  RunJournal* const journal_;
  Membership membership_;
  std::map<std::shared_ptr<WorkerSession>, Session> sessions_;
  std::map<std::string, std::shared_ptr<WorkerSession>> by_worker_;
  std::vector<std::shared_ptr<RunDriver>> runs_;  // in order of submission
  std::vector<Watched> watched_;
  std::vector<JournalRunSummary> earlier_runs_;  // whose names no run of this life has taken
  bool shut_down_ = false;
};

}  // namespace stagecoach
