#include "coordinator/domain/run_machine.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cluster_rules.h"

namespace stagecoach {
namespace {

// How long the report of a failing link waits for news of the neighbour. A killed process is known at once; longer
// would eat into the 15 s within which a lost worker must end its run.
constexpr Duration kBlameGrace = std::chrono::seconds(2);

}  // namespace

void RunMachine::Enter(MonoTime now, RunPhase phase, std::string detail, Duration timeout) {
  phase_ = phase;
  detail_ = std::move(detail);
  deadline_ = timeout == Duration::max() ? MonoTime::max() : now + timeout;
}

bool RunMachine::IsMember(absl::string_view worker) const {
  return std::find(members_.begin(), members_.end(), std::string(worker)) != members_.end();
}

RunMachine::Place RunMachine::PlaceOf(absl::string_view worker) const {
  const auto found = std::find(members_.begin(), members_.end(), std::string(worker));
  Place place{0, static_cast<size_t>(found - members_.begin())};
  while (place.cluster < cluster_sizes_.size() && place.stage >= cluster_sizes_[place.cluster]) {
    place.stage -= cluster_sizes_[place.cluster++];
  }
  return place;
}

std::string RunMachine::StageName(absl::string_view worker) const {
  const Place place = PlaceOf(worker);
  return absl::StrCat("worker ", worker, " (",
                      cluster_sizes_.size() > 1 ? absl::StrCat("cluster ", place.cluster, ", ") : "", "stage ",
                      place.stage, ")");
}

size_t RunMachine::MostMembers() const {
  if (!options_.cluster_sizes.empty()) {
    return std::accumulate(options_.cluster_sizes.begin(), options_.cluster_sizes.end(), size_t{0});
  }
  const size_t most = size_t{options_.max_stages} * options_.clusters;
  return options_.choose_clusters ? std::min(most, kMostMeasuredTogether) : most;
}

void RunMachine::SplitMembers() {
  if (options_.choose_clusters) {
    cluster_sizes_ = {members_.size()};  // until the plan is there
  } else if (!options_.cluster_sizes.empty()) {
    cluster_sizes_ = options_.cluster_sizes;
  } else {
    cluster_sizes_ = EqualClusterSizes(members_.size(), options_.clusters);
  }
}

// Neighbours of each pipeline, both ways; where the plan chooses, all pairs by the circle method: one place stays, the
// others turn, and opposite ones meet. Of an odd number one pauses in each round.
void RunMachine::ListLinks() {
  if (options_.choose_clusters) {
    const size_t workers = members_.size(), places = workers + workers % 2;
    for (size_t turn = 0; turn + 1 < places; ++turn) {
      const auto member_at = [&](size_t place) {
        return place == 0 ? size_t{0} : 1 + (place - 1 + turn) % (places - 1);
      };
      std::vector<Link> there, back;
      for (size_t place = 0; place < places / 2; ++place) {
        const size_t a = member_at(place), b = member_at(places - 1 - place);
        if (a >= workers || b >= workers) continue;
        there.emplace_back(members_[a], members_[b]);
        back.emplace_back(members_[b], members_[a]);
      }
      link_rounds_.push_back(std::move(there));
      link_rounds_.push_back(std::move(back));
    }
    return;
  }
  size_t first = 0;
  for (const size_t size : cluster_sizes_) {
    for (size_t i = first; i + 1 < first + size; ++i) {
      link_rounds_.push_back({{members_[i], members_[i + 1]}});
      link_rounds_.push_back({{members_[i + 1], members_[i]}});
    }
    first += size;
  }
}

RunEffects RunMachine::OnFreeWorkers(MonoTime now, const std::vector<std::string>& free) {
  if (phase_ != RunPhase::kWaiting) return {};
  size_t wanted = options_.choose_clusters ? 1 : options_.clusters;
  if (!options_.cluster_sizes.empty()) wanted = MostMembers();
  if (options_.workers_wanted > 0) wanted = options_.workers_wanted;
  if (free.size() < wanted) {
    detail_ = absl::StrCat("waits for workers: ", free.size(), " of ", wanted, " are there");
    return {};
  }
  const size_t limit = options_.workers_wanted == 0 ? free.size() : wanted;
  members_.assign(free.begin(), free.begin() + static_cast<ptrdiff_t>(std::min(limit, MostMembers())));
  SplitMembers();
  ListLinks();
  next_probe_ = 0;
  return NextProbe(now);
}

RunEffects RunMachine::NextProbe(MonoTime now) {
  // Of a further plan most is known.
  const size_t workers = members_.size();
  while (next_probe_ < workers && measured_.count(members_[next_probe_]) > 0) ++next_probe_;
  const auto is_measured = [&](const std::vector<Link>& round) {
    return std::all_of(round.begin(), round.end(), [&](const Link& link) { return measured_links_.count(link) > 0; });
  };
  while (next_probe_ >= workers && next_probe_ - workers < link_rounds_.size() &&
         is_measured(link_rounds_[next_probe_ - workers])) {
    ++next_probe_;
  }
  const size_t index = next_probe_++;
  if (index < workers) {
    Enter(now, RunPhase::kMeasuring, absl::StrCat("measures worker ", members_[index]), options_.probe_timeout);
    return {ProbeWorkerEffect{members_[index]}};
  }
  if (index - workers < link_rounds_.size()) {
    const std::vector<Link>& round = link_rounds_[index - workers];
    links_under_way_.insert(round.begin(), round.end());
    RunEffects effects;
    for (const auto& [from, to] : round) effects.push_back(ProbeLinkEffect{from, to});
    Enter(now, RunPhase::kMeasuring,
          round.size() == 1 ? absl::StrCat("measures link ", round[0].first, " -> ", round[0].second)
                            : absl::StrCat("measures links, round ", index - workers + 1, " of ", link_rounds_.size()),
          options_.link_timeout);
    return effects;
  }
  Enter(now, RunPhase::kPlanning, "makes the plan", options_.plan_timeout);
  return {MakePlanEffect{members_}};
}

RunEffects RunMachine::OnWorkerProbed(MonoTime now, absl::string_view worker, absl::string_view error) {
  // An answer that comes after its time-out, or twice, is not the one that is waited for.
  if (phase_ != RunPhase::kMeasuring || next_probe_ > members_.size() ||
      members_[next_probe_ - 1] != std::string(worker)) {
    return {};
  }
  if (!error.empty()) return Fail(absl::StrCat("worker ", worker, " could not measure the model: ", error));
  measured_.insert(std::string(worker));
  return NextProbe(now);
}

RunEffects RunMachine::OnLinkProbed(MonoTime now, absl::string_view from, absl::string_view to,
                                    absl::string_view error) {
  if (phase_ != RunPhase::kMeasuring || links_under_way_.erase({std::string(from), std::string(to)}) == 0) return {};
  if (!error.empty() && !options_.choose_clusters) {
    return Fail(absl::StrCat("worker ", from, " cannot reach worker ", to, ": ", error));
  }
  if (error.empty()) measured_links_.insert({std::string(from), std::string(to)});
  return links_under_way_.empty() ? NextProbe(now) : RunEffects{};
}

RunEffects RunMachine::OnPlanned(MonoTime now, uint64_t total_steps,
                                 const std::vector<std::vector<std::string>>& clusters) {
  if (phase_ != RunPhase::kPlanning) return {};
  options_.total_steps = total_steps;
  if (!clusters.empty()) {
    members_.clear();
    cluster_sizes_.clear();
    for (const std::vector<std::string>& cluster : clusters) {
      members_.insert(members_.end(), cluster.begin(), cluster.end());
      cluster_sizes_.push_back(cluster.size());
    }
  }
  Enter(now, RunPhase::kLoading, "workers load their stages", options_.load_timeout);
  return {AssignStagesEffect{}};
}

RunEffects RunMachine::OnPlanFailed(MonoTime, absl::string_view error) {
  return phase_ == RunPhase::kPlanning ? Fail(error) : RunEffects{};
}

RunEffects RunMachine::OnStageReady(MonoTime now, absl::string_view worker) {
  if (phase_ != RunPhase::kLoading || !IsMember(worker)) return {};
  ready_.insert(std::string(worker));
  detail_ = absl::StrCat("workers load their stages: ", ready_.size(), " of ", members_.size());
  if (ready_.size() < members_.size()) return {};
  Enter(now, RunPhase::kRunning, "", options_.stall_timeout);
  return {StartStagesEffect{}};
}

RunEffects RunMachine::OnProgress(MonoTime now) {
  const bool moving = phase_ == RunPhase::kRunning || phase_ == RunPhase::kStopping;
  if (moving && finished_.size() < members_.size()) deadline_ = now + options_.stall_timeout;
  return {};
}

RunEffects RunMachine::OnStopPoint(MonoTime now, absl::string_view worker, uint64_t step) {
  if (phase_ != RunPhase::kStopping || cluster_sizes_.size() < 2 || !IsMember(worker)) return {};
  if (PlaceOf(worker).stage != 0 || !stop_points_.emplace(std::string(worker), step).second) return {};
  if (stop_points_.size() < cluster_sizes_.size()) return {};
  uint64_t last = 0;
  for (const auto& [name, point] : stop_points_) last = std::max(last, point);
  deadline_ = now + options_.stall_timeout;
  return {EndAfterEffect{last}};
}

RunEffects RunMachine::OnStageFinished(MonoTime now, absl::string_view worker, uint64_t steps) {
  if ((phase_ != RunPhase::kRunning && phase_ != RunPhase::kStopping) || !IsMember(worker)) return {};
  finished_[std::string(worker)] = steps;
  if (steps != finished_.begin()->second) {
    return Fail(absl::StrCat(StageName(worker), " ended after ", steps, " steps, ", finished_.begin()->first, " after ",
                             finished_.begin()->second));
  }
  if (finished_.size() == members_.size()) deadline_ = now + options_.commit_timeout;
  return EndWhenComplete(now);
}

RunEffects RunMachine::OnCheckpointCommitted(MonoTime now, uint64_t step) {
  if (ended()) return {};
  committed_ = std::max(step, committed_.value_or(0));
  return EndWhenComplete(now);
}

RunEffects RunMachine::OnCheckpointFailed(MonoTime now, uint64_t step, absl::string_view error) {
  if (ended()) return {};
  if (!failed_checkpoint_ || failed_checkpoint_->first < step) failed_checkpoint_.emplace(step, std::string(error));
  return EndWhenComplete(now);
}

RunEffects RunMachine::EndWhenComplete(MonoTime now) {
  if (members_.empty() || finished_.size() < members_.size()) return {};
  const uint64_t steps = finished_.begin()->second;
  if (committed_ != steps && failed_checkpoint_ && failed_checkpoint_->first == steps) {
    return Fail(absl::StrCat("the last checkpoint could not be written: ", failed_checkpoint_->second, "; ",
                             committed_ ? absl::StrCat("the one of step ", *committed_, " stays")
                                        : std::string("this life of the run made none"),
                             ": mend the cause and go on with --resume"));
  }
  if (committed_ != steps) {
    detail_ = absl::StrCat("waits for the checkpoint of step ", steps);
    return {};
  }
  if (!skip_reason_.empty()) return Fail(skip_reason_);
  const bool all = steps >= options_.total_steps;
  Enter(now, all ? RunPhase::kFinished : RunPhase::kStopped,
        all ? "" : absl::StrCat("stopped after ", steps, " of ", options_.total_steps, " steps; go on with --resume"),
        Duration::max());
  return {ReleaseEffect{"the run has ended"}, EndedEffect{}};
}

RunEffects RunMachine::OnStageFailed(MonoTime now, absl::string_view worker, absl::string_view error,
                                     absl::string_view peer) {
  if (ended() || !IsMember(worker)) return {};
  const std::string text = absl::StrCat(StageName(worker), ": ", error);
  if (peer.empty() || !IsMember(peer)) return Fail(text);
  // Keep the first report: the later ones follow from it.
  if (!blame_) blame_ = Blame{now + kBlameGrace, std::string(peer), absl::StrCat(text, " (neighbour ", peer, ")")};
  return {};
}

RunEffects RunMachine::OnStopRequested(MonoTime now, absl::string_view reason) {
  if (ended() || phase_ == RunPhase::kStopping) return {};
  if (phase_ == RunPhase::kRunning) {
    Enter(now, RunPhase::kStopping, std::string(reason), options_.stall_timeout);
    return {RequestStopEffect{}};
  }
  Enter(now, RunPhase::kStopped, absl::StrCat("stopped before it started: ", reason), Duration::max());
  return {ReleaseEffect{std::string(reason)}, EndedEffect{}};
}

RunEffects RunMachine::OnTooManySkips(MonoTime now, absl::string_view reason) {
  if (phase_ != RunPhase::kRunning && phase_ != RunPhase::kStopping) return {};
  if (skip_reason_.empty()) skip_reason_ = std::string(reason);
  return OnStopRequested(now, reason);
}

RunEffects RunMachine::OnFatal(MonoTime, absl::string_view error) { return ended() ? RunEffects{} : Fail(error); }

bool RunMachine::MayReplan() const {
  if (!options_.replan.on_lost_worker || (!committed_ && !options_.resumed)) return false;
  if (phase_ == RunPhase::kRunning) return true;
  return !replan_reason_.empty() && phase_ >= RunPhase::kMeasuring && phase_ < RunPhase::kRunning;
}

RunEffects RunMachine::Replan(MonoTime now, Placement placement, absl::string_view lost) {
  replans_.Spend(now);
  members_ = std::move(placement.members);
  cluster_sizes_ = std::move(placement.cluster_sizes);
  options_.choose_clusters = false;  // the record has what was chosen
  link_rounds_.clear();
  links_under_way_.clear();
  stop_points_.clear();
  ready_.clear();
  finished_.clear();
  failed_checkpoint_.reset();
  blame_.reset();
  measured_.erase(std::string(lost));
  std::erase_if(measured_links_, [&](const Link& link) { return link.first == lost || link.second == lost; });
  next_probe_ = 0;
  ListLinks();
  RunEffects effects = {ReplanEffect{std::string(lost), replan_reason_}};
  for (RunEffect& effect : NextProbe(now)) effects.push_back(std::move(effect));
  return effects;
}

RunEffects RunMachine::OnWorkerLost(MonoTime now, absl::string_view worker, absl::string_view reason,
                                    const std::vector<std::string>& standbys) {
  if (ended() || !IsMember(worker)) return {};
  std::string text = absl::StrCat(StageName(worker), " was lost: ", reason);
  if (MayReplan()) {
    auto placement = PlacementWithout({members_, cluster_sizes_}, worker, standbys);
    if (placement && replans_.Allows(now)) {
      replan_reason_ = std::move(text);
      return Replan(now, *std::move(placement), worker);
    }
    absl::StrAppend(&text, placement ? absl::StrCat("; no new plan: there were ", options_.replan.most_per_hour,
                                                    " within the hour (replan.most_per_hour)")
                                     : "; no new plan: fewer workers are left than clusters");
    replan_reason_.clear();  // this error has one already
  }
  if (phase_ == RunPhase::kRunning || phase_ == RunPhase::kStopping) {
    absl::StrAppend(&text, committed_ ? absl::StrCat("; the checkpoint of step ", *committed_,
                                                     " stays, start the worker again and go on with --resume")
                                      : std::string("; this life of the run made no checkpoint"));
  }
  return Fail(text);
}

RunEffects RunMachine::OnTick(MonoTime now) {
  if (ended()) return {};
  if (blame_ && now >= blame_->due) return Fail(blame_->error);
  if (now < deadline_) return {};
  if (phase_ == RunPhase::kLoading) {
    std::vector<std::string> missing;
    for (const std::string& member : members_) {
      if (ready_.count(member) == 0 && missing.size() < 3) missing.push_back(member);
    }
    return Fail(absl::StrCat("not ready in time: ", absl::StrJoin(missing, ", ")));
  }
  if (phase_ == RunPhase::kRunning || phase_ == RunPhase::kStopping) {
    return Fail(finished_.size() == members_.size() && !members_.empty()
                    ? absl::StrCat("the last checkpoint did not become complete in time")
                    : absl::StrCat("no stage has moved for ", options_.stall_timeout / std::chrono::seconds(1),
                                   " s; see the logs of the workers"));
  }
  if (phase_ == RunPhase::kMeasuring && options_.choose_clusters && !links_under_way_.empty()) {
    links_under_way_.clear();  // as if they could not be measured
    return NextProbe(now);
  }
  return Fail(absl::StrCat("took too long: ", detail_));
}

RunEffects RunMachine::Fail(absl::string_view error) {
  const bool of_replan = !replan_reason_.empty() && phase_ < RunPhase::kRunning;
  phase_ = RunPhase::kFailed;
  detail_ = of_replan ? absl::StrCat(replan_reason_, "; no new plan: ", error) : std::string(error);
  deadline_ = MonoTime::max();
  return {ReleaseEffect{detail_}, EndedEffect{}};
}

}  // namespace stagecoach
