#include "coordinator/service/fleet_control.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/service/run_state_text.h"
#include "coordinator/service/wire_checks.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxRuns = 16;      // 07 section 3; ended ones make room
constexpr size_t kMaxWatchers = 64;  // each holds a stream and is sent up to 4 statuses a second

void Log(absl::string_view event, absl::string_view worker, absl::string_view reason) {
  Log(LogLevel::kInfo, "coordinator", event, {{"worker", std::string(worker)}, {"reason", std::string(reason)}});
}

// One spelling of a path. Symbolic links are not followed: the loop touches no file system.
std::string FolderOf(const std::string& path) {
  std::string folder = std::filesystem::path(path).lexically_normal().string();
  if (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

FleetControl::FleetControl(const Options& options, EventLoop* loop, EventLoop* store, RunJournal* journal)
    : options_(options),
      loop_(loop),
      store_(store),
      journal_(journal),
      membership_(options.membership),
      earlier_runs_(options.earlier_runs) {}

void FleetControl::OnTick() {
  if (shut_down_) return;
  for (const Membership::Silence& silence : membership_.OnTick(loop_->Now())) {
    if (!silence.dead) {
      Log("worker_suspect", silence.name, "silent");
      continue;
    }
    const auto session = by_worker_.find(silence.name);
    LoseWorker(silence.name, "it has been silent for too long (hung, stopped, or its network is down)");
    if (session != by_worker_.end()) {
      const std::shared_ptr<WorkerSession> held = session->second;
      sessions_.erase(held);
      by_worker_.erase(session);
      held->Close(absl::DeadlineExceededError("no heartbeat for too long; register again"));
    }
  }
  for (size_t i = 0; i < runs_.size(); ++i) runs_[i]->OnTick();
  UpdateWatchers();
}

void FleetControl::OnMessage(const std::shared_ptr<WorkerSession>& session, const WorkerMessage& message) {
  if (shut_down_) return;
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) {
    if (!message.has_register_()) {
      return session->Close(absl::InvalidArgumentError("the first message of a session must be Register"));
    }
    return OnRegister(session, message.register_());
  }
  const Session who = found->second;
  absl::Status status = CheckWorkerMessage(message);
  if (status.ok()) status = membership_.Heard(loop_->Now(), who.worker, who.incarnation);
  if (!status.ok()) return Drop(session, status);
  if (message.has_heartbeat()) {
    CoordinatorMessage reply;
    reply.mutable_heartbeat_reply()->set_echo(message.heartbeat().echo());
    reply.mutable_heartbeat_reply()->set_heartbeat_interval_ms(
        static_cast<uint32_t>(membership_.HeartbeatInterval() / std::chrono::milliseconds(1)));
    session->Send(reply);
  }
  if (const auto run = RunOf(who.worker)) run->OnWorkerMessage(who.worker, message, message.ByteSizeLong());
}

void FleetControl::OnRegister(const std::shared_ptr<WorkerSession>& session, const Register& message) {
  if (const absl::Status status = CheckRegister(message); !status.ok()) return session->Close(status);
  WorkerDescription worker{message.name(),
                           message.incarnation(),
                           message.address(),
                           message.device(),
                           message.host(),
                           message.cores(),
                           message.memory_limit_bytes(),
                           message.memory_cap_bytes(),
                           message.version(),
                           message.torch_version(),
                           message.cpu_capability()};
  const auto replaced = membership_.Register(loop_->Now(), worker);
  if (!replaced.ok()) return session->Close(replaced.status());
  const auto old = by_worker_.find(worker.name);
  if (old != by_worker_.end()) {  // another life, or another stream of the same one: whatever it did is over
    const std::shared_ptr<WorkerSession> held = old->second;
    sessions_.erase(held);
    by_worker_.erase(old);
    LoseWorker(worker.name, "it was started anew (or another process uses its name)");
    held->Close(absl::AbortedError("another process registered under this name"));
  }
  sessions_[session] = {worker.name, worker.incarnation};
  by_worker_[worker.name] = session;
  Log("worker_registered", worker.name, worker.address);
  CoordinatorMessage reply;
  reply.mutable_registered()->set_heartbeat_interval_ms(
      static_cast<uint32_t>(membership_.HeartbeatInterval() / std::chrono::milliseconds(1)));
  reply.mutable_registered()->set_term(options_.term);
  session->Send(reply);
  for (size_t i = 0; i < runs_.size(); ++i) runs_[i]->OnWorkersChanged();
}

void FleetControl::Drop(const std::shared_ptr<WorkerSession>& session, const absl::Status& status) {
  OnClosed(session, absl::StrCat("its stream was closed: ", status.message()));
  session->Close(status);
}

void FleetControl::OnClosed(const std::shared_ptr<WorkerSession>& session, absl::string_view reason) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const Session who = found->second;
  sessions_.erase(found);
  by_worker_.erase(who.worker);
  membership_.Remove(who.worker, who.incarnation);
  LoseWorker(who.worker, reason);
}

void FleetControl::LoseWorker(const std::string& worker, absl::string_view reason) {
  Log("worker_lost", worker, reason);
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (!runs_[i]->ended() && runs_[i]->IsMember(worker)) runs_[i]->OnWorkerLost(worker, reason);
  }
}

std::shared_ptr<RunDriver> FleetControl::RunOf(const std::string& worker) const {
  for (const auto& run : runs_) {
    if (!run->ended() && run->IsMember(worker)) return run;
  }
  return nullptr;
}

std::vector<std::string> FleetControl::FreeWorkers() const {
  std::vector<std::string> free;
  for (const std::string& name : membership_.Names()) {
    if (RunOf(name) == nullptr) free.push_back(name);
  }
  return free;
}

void FleetControl::SendTo(const std::string& worker, const CoordinatorMessage& message) {
  const auto session = by_worker_.find(worker);
  if (session != by_worker_.end()) session->second->Send(message);
}

absl::StatusOr<std::string> FleetControl::Submit(const SubmitRequest& request) {
  if (shut_down_) return absl::UnavailableError("the coordinator is shutting down");
  RETURN_IF_ERROR(CheckSubmit(request));
  const std::string name = request.spec().name().empty() ? "run" : request.spec().name();
  for (const auto& run : runs_) {
    if (!run->ended() && run->name() == name) {
      return absl::AlreadyExistsError(absl::StrCat("run ", name, " is under way; give this one another name"));
    }
    if (!run->ended() && FolderOf(run->run_dir()) == FolderOf(request.spec().run_dir())) {
      return absl::AlreadyExistsError(absl::StrCat("run_dir: ", request.spec().run_dir(), " is in use by run ",
                                                   run->name(), ", which is under way; give this one another folder"));
    }
  }
  std::erase_if(runs_, [&](const auto& run) { return run->name() == name; });
  ForgetOldRuns();
  if (runs_.size() >= kMaxRuns) return absl::ResourceExhaustedError("16 runs are under way; wait for one to end");
  RunSurroundings around;
  around.loop = loop_;
  around.store = store_;
  around.journal = journal_;
  around.membership = &membership_;
  around.send = [this](const std::string& worker, const CoordinatorMessage& message) { SendTo(worker, message); };
  around.free_workers = [this] { return FreeWorkers(); };
  // Runs that wait get the workers that became free: not from inside the effects of the run that had them.
  around.on_workers_free = [this] {
    loop_->Post([this] {
      for (size_t i = 0; i < runs_.size(); ++i) runs_[i]->OnWorkersChanged();
    });
  };
  const auto run = std::make_shared<RunDriver>(request, options_.run_limits, std::move(around));
  runs_.push_back(run);
  std::erase_if(earlier_runs_, [&](const JournalRunSummary& earlier) { return earlier.run == name; });
  Log("run_submitted", "", name);
  run->Begin();
  return name;
}

void FleetControl::ForgetOldRuns() {
  for (size_t i = 0; i < runs_.size() && runs_.size() >= kMaxRuns;) {
    const bool watched =
        std::any_of(watched_.begin(), watched_.end(), [&](const auto& w) { return w.run == runs_[i]; });
    if (runs_[i]->ended() && !watched) {
      runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

absl::Status FleetControl::Stop(const std::string& name) {
  for (const auto& run : runs_) {
    if (run->name() != name) continue;
    run->Stop("stop was asked for");
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("no run ", name.substr(0, 63), "; see stagecoach status"));
}

absl::Status FleetControl::Watch(const std::string& name, std::shared_ptr<RunWatcher> watcher) {
  if (shut_down_) return absl::UnavailableError("the coordinator is shutting down");
  if (watched_.size() >= kMaxWatchers) return absl::ResourceExhaustedError("64 others watch already");
  for (const auto& run : runs_) {
    if (run->name() != name) continue;
    watched_.push_back({std::move(watcher), run, {}, true});
    UpdateWatchers();
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("no run ", name.substr(0, 63), "; see stagecoach status"));
}

void FleetControl::Unwatch(const RunWatcher* watcher) {
  std::erase_if(watched_, [watcher](const Watched& watched) { return watched.watcher.get() == watcher; });
}

void FleetControl::UpdateWatchers() {
  for (size_t i = 0; i < watched_.size();) {
    Watched& watched = watched_[i];
    if (!watched.watcher->busy() && (watched.first || !watched.run->AllSeen(watched.cursor))) {
      watched.first = false;
      watched.watcher->Send(watched.run->Status(&watched.cursor));
    } else if (!watched.watcher->busy() && watched.run->ended()) {  // everything was sent, and the last write is done
      const std::shared_ptr<RunWatcher> watcher = watched.watcher;
      watched_.erase(watched_.begin() + static_cast<ptrdiff_t>(i));
      watcher->Close(absl::OkStatus());
      continue;
    }
    ++i;
  }
}

FleetStatusReply FleetControl::Status() const {
  FleetStatusReply reply;
  reply.set_version(options_.version);
  std::map<std::string, WorkerRow> rows;
  for (const std::string& name : membership_.Names()) {
    const WorkerDescription* worker = membership_.Find(name);
    WorkerRow& row = rows[name];
    row.set_name(name);
    row.set_address(worker->address);
    row.set_device(worker->device);
    row.set_state(membership_.IsSuspect(name) ? "suspect" : "free");
  }
  for (const auto& run : runs_) {
    WatchCursor everything{SIZE_MAX / 2, SIZE_MAX / 2, 0};  // the state alone, no rows: they are for Watch
    *reply.add_runs() = run->Status(&everything);
    if (run->ended()) continue;
    for (const WorkerRow& row : reply.runs(reply.runs_size() - 1).workers()) rows[row.name()] = row;
  }
  for (const auto& [name, row] : rows) *reply.add_workers() = row;
  for (const JournalRunSummary& run : earlier_runs_) {
    const SavedRunState saved = ParseSavedState(run.state);
    EarlierRun* row = reply.add_earlier_runs();
    row->set_run(run.run);
    row->set_state(saved.state);
    row->set_detail(saved.detail);
    row->set_steps_done(run.steps);
  }
  return reply;
}

void FleetControl::Shutdown() {
  shut_down_ = true;
  for (const auto& run : runs_) run->Stop("the coordinator was stopped");
  for (auto& watched : watched_) watched.watcher->Close(absl::UnavailableError("the coordinator was stopped"));
  watched_.clear();
  for (const auto& [session, who] : sessions_) session->Close(absl::UnavailableError("the coordinator was stopped"));
  sessions_.clear();
  by_worker_.clear();
}

}  // namespace stagecoach
