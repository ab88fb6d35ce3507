// The life of one run: which workers it has, what it waits for, when it ends and why. Events in, effects out.
//
//   WAITING --enough workers--> MEASURING --all probes--> PLANNING --plan--> LOADING --all ready--> RUNNING
//   RUNNING --stop asked, or too many skips--> STOPPING
//   RUNNING, STOPPING --all stages finished and the last checkpoint committed--> FINISHED (all steps) or STOPPED
//   any --stop asked before RUNNING--> STOPPED
//   RUNNING, and MEASURING to LOADING of a further plan --a worker is lost--> MEASURING of the next plan, over
//       those that are left and from the newest checkpoint (coordinator/domain/replanning.h)
//   any --else a worker of the run is lost, a stage or a step of this list fails or takes too long--> FAILED
//
// Where the plan chooses the clusters, all pairs of workers are measured first, in rounds of pairs that have no worker
// in common; a pair that cannot be measured is left to the plan, which does not use it.
//
// Several clusters in one run share this life: it begins when the stages of all are ready, ends when all have finished
// after the same step, and has one plan.
//
// A stage that fails because of a neighbour is given kBlameGrace: if that neighbour turns out to be lost, the error
// names it and not the messenger.
//
// Threading: a value, confined to the coordinator loop. Time is an argument; OnTick at least every second.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/domain/replanning.h"

namespace stagecoach {

using Duration = std::chrono::nanoseconds;

enum class RunPhase { kWaiting, kMeasuring, kPlanning, kLoading, kRunning, kStopping, kFinished, kStopped, kFailed };

struct ProbeWorkerEffect {
  std::string worker;
};
struct ProbeLinkEffect {
  std::string from, to;
};
struct MakePlanEffect {
  std::vector<std::string> workers;
};
struct AssignStagesEffect {};
struct StartStagesEffect {};
struct RequestStopEffect {};  // graceful, through stage 0; several clusters: ask each stage 0 to hold
struct EndAfterEffect {
  uint64_t step = 0;
};  // several clusters: what all stages 0 hold at, the largest
struct ReleaseEffect {
  std::string reason;
};  // all members that are still there
struct EndedEffect {};
// Before what measures for the new plan. The members are those of the new plan already.
struct ReplanEffect {
  std::string lost, reason;
};
using RunEffect =
    std::variant<ProbeWorkerEffect, ProbeLinkEffect, MakePlanEffect, AssignStagesEffect, StartStagesEffect,
                 RequestStopEffect, EndAfterEffect, ReleaseEffect, EndedEffect, ReplanEffect>;
using RunEffects = std::vector<RunEffect>;

class RunMachine {
 public:
  struct Options {
    uint32_t workers_wanted = 0;        // 0 = all that are free when there is at least one
    uint32_t max_stages = 1;            // cuts + 1 that the model allows
    uint32_t clusters = 1;              // the workers are split over so many; with choose_clusters over so many at most
    bool choose_clusters = false;       // OnPlanned says which worker is in which cluster
    std::vector<size_t> cluster_sizes;  // of an earlier run: the split is not even then
    uint64_t total_steps = 1;
    bool resumed = false;  // there is a checkpoint before this life has made one
    ReplanLimits replan;
    Duration probe_timeout = std::chrono::seconds(180);   // a large block on a slow CPU: 7 passes
    Duration link_timeout = std::chrono::seconds(60);     // of a link or a round: 30 s of traffic and the dialling
    Duration plan_timeout = std::chrono::seconds(300);    // opens the data, verifies a checkpoint
    Duration load_timeout = std::chrono::seconds(600);    // reads a checkpoint from slow storage
    Duration stall_timeout = std::chrono::seconds(180);   // no stage moves at all
    Duration commit_timeout = std::chrono::seconds(120);  // last parts and the manifest
  };

  // Where every pair is measured there are two rounds for each worker of up to a few seconds.
  static constexpr size_t kMostMeasuredTogether = 64;

  explicit RunMachine(const Options& options) : options_(options), replans_(options.replan.most_per_hour) {}

  // free: names of live workers without a run, ascending. Only matters while WAITING.
  RunEffects OnFreeWorkers(MonoTime now, const std::vector<std::string>& free);
  RunEffects OnWorkerProbed(MonoTime now, absl::string_view worker, absl::string_view error);
  RunEffects OnLinkProbed(MonoTime now, absl::string_view from, absl::string_view to, absl::string_view error);
  // clusters: members in pipeline order, where the plan chose them (else empty); who is in none is no member any more.
  RunEffects OnPlanned(MonoTime now, uint64_t total_steps, const std::vector<std::vector<std::string>>& clusters);
  RunEffects OnPlanFailed(MonoTime now, absl::string_view error);
  RunEffects OnStageReady(MonoTime now, absl::string_view worker);
  RunEffects OnProgress(MonoTime now);                                            // any stage did anything
  RunEffects OnStopPoint(MonoTime now, absl::string_view worker, uint64_t step);  // a stage 0 holds there
  RunEffects OnStageFinished(MonoTime now, absl::string_view worker, uint64_t steps);
  RunEffects OnStageFailed(MonoTime now, absl::string_view worker, absl::string_view error, absl::string_view peer);
  RunEffects OnCheckpointCommitted(MonoTime now, uint64_t step);
  // The checkpoint of that step was given up. It ends the run only if it is the one that the run ends with.
  RunEffects OnCheckpointFailed(MonoTime now, uint64_t step, absl::string_view error);
  RunEffects OnStopRequested(MonoTime now, absl::string_view reason);
  RunEffects OnTooManySkips(MonoTime now, absl::string_view reason);
  RunEffects OnFatal(MonoTime now, absl::string_view error);  // the journal, the record, a protocol error
  // `standbys`: names of live workers without a run, ascending; for another plan.
  RunEffects OnWorkerLost(MonoTime now, absl::string_view worker, absl::string_view reason,
                          const std::vector<std::string>& standbys = {});
  RunEffects OnTick(MonoTime now);

  RunPhase phase() const { return phase_; }
  bool ended() const { return phase_ >= RunPhase::kFinished; }
  // What it waits for, or why it ended.
  const std::string& detail() const { return detail_; }
  // In pipeline order, cluster after cluster; empty while WAITING. By name until the plan has chosen clusters.
  const std::vector<std::string>& members() const { return members_; }
  // Workers of each cluster: their sum is the number of members.
  const std::vector<size_t>& cluster_sizes() const { return cluster_sizes_; }
  struct Place {
    size_t cluster = 0, stage = 0;
  };
  Place PlaceOf(absl::string_view worker) const;  // precondition: a member
  bool IsMember(absl::string_view worker) const;

 private:
  struct Blame {
    MonoTime due{0};
    std::string peer, error;
  };

  using Link = std::pair<std::string, std::string>;  // from, to

  size_t MostMembers() const;
  void SplitMembers();
  void ListLinks();
  RunEffects NextProbe(MonoTime now);
  bool MayReplan() const;
  RunEffects Replan(MonoTime now, Placement placement, absl::string_view lost);
  RunEffects Fail(absl::string_view error);
  RunEffects EndWhenComplete(MonoTime now);
  std::string StageName(absl::string_view worker) const;
  void Enter(MonoTime now, RunPhase phase, std::string detail, Duration timeout);

  Options options_;
  RunPhase phase_ = RunPhase::kWaiting;
  std::string detail_ = "waits for workers";
  std::vector<std::string> members_;
  std::vector<size_t> cluster_sizes_;
  std::vector<std::vector<Link>> link_rounds_;  // measured together; one link each unless the plan chooses clusters
  std::set<Link> links_under_way_;
  size_t next_probe_ = 0;                        // members, then rounds of links
  std::map<std::string, uint64_t> stop_points_;  // by stage 0
  std::set<std::string> ready_;
  std::map<std::string, uint64_t> finished_;
  std::optional<uint64_t> committed_;
  std::optional<std::pair<uint64_t, std::string>> failed_checkpoint_;  // the newest
  std::string skip_reason_;
  std::optional<Blame> blame_;
  std::set<std::string> measured_;  // workers and links whose measurements are valid
  std::set<Link> measured_links_;
  ReplanBudget replans_;
  std::string replan_reason_;  // of the newest further plan
  MonoTime deadline_{MonoTime::max()};
};

}  // namespace stagecoach
