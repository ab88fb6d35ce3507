#include "coordinator/domain/round_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr uint32_t kHalfWeightAfter = 2;  // missed rounds (04 section 7)
constexpr uint32_t kResyncAfter = 4;

void Append(RoundEffects* effects, RoundEffects more) {
  for (RoundEffect& effect : more) effects->push_back(std::move(effect));
}

}  // namespace

RoundEffect RoundMachine::Make(RoundEffect::Kind kind) const {
  RoundEffect effect;
  effect.kind = kind;
  effect.round = round_;
  effect.attempt = attempt_;
  return effect;
}

size_t RoundMachine::Quorum() const {
  if (options_.mode == RoundMode::kDeterministic) return clusters_.size();
  const size_t wanted = options_.quorum > 0 ? options_.quorum : std::max<size_t>(2, (clusters_.size() + 1) / 2);
  return std::min(wanted, clusters_.size());
}

RoundMachine::Time RoundMachine::Grace() const {
  if (last_interval_.count() == 0) return options_.max_grace;
  const auto share = std::chrono::duration_cast<Time>(last_interval_ * options_.grace_share);
  return std::min(share, options_.max_grace);
}

bool RoundMachine::IsContributor(absl::string_view cluster) const {
  return std::any_of(contributors_.begin(), contributors_.end(),
                     [&](const RoundContributor& contributor) { return contributor.cluster == cluster; });
}

RoundEffects RoundMachine::Start(Time now, uint64_t first_round) {
  started_ = true;
  round_ = first_round - 1;
  RoundEffects effects = OpenNext(now);
  last_interval_ = Time{0};
  return effects;
}

RoundEffects RoundMachine::OpenNext(Time now) {
  if (round_ > 0) last_interval_ = now - opened_;
  ++round_;
  attempt_ = 0;
  phase_ = Phase::kCollect;
  opened_ = now;
  quorum_since_ = Time::max();
  excluded_.clear();
  contributors_.clear();
  proposed_.clear();
  for (auto& [name, cluster] : clusters_) cluster.ready = false;
  return {Make(RoundEffect::Kind::kOpen)};
}

absl::Status RoundMachine::AddCluster(absl::string_view name, uint64_t epoch, const StageCuts& cuts) {
  std::vector<StageCuts> all;
  for (const auto& [other, cluster] : clusters_) {
    if (other != name) all.push_back(cluster.cuts);
  }
  all.push_back(cuts);
  RETURN_IF_ERROR(RefineCuts(all).status());
  const auto [entry, is_new] = clusters_.try_emplace(std::string(name));
  Cluster& cluster = entry->second;
  if (is_new) cluster.joined_round = round_;
  // Of another plan: what it announced is void until it announces it again.
  if (cluster.epoch != epoch) cluster.ready = false;
  cluster.epoch = epoch;
  cluster.cuts = cuts;
  return absl::OkStatus();
}

RoundEffects RoundMachine::RemoveCluster(Time now, absl::string_view name) {
  const auto found = clusters_.find(std::string(name));
  if (found == clusters_.end()) return {};
  if (options_.mode == RoundMode::kDeterministic) {
    found->second.ready = false;  // it belongs to the plan: the round waits for it
  } else {
    clusters_.erase(found);
  }
  if (phase_ == Phase::kExchange && IsContributor(name)) {
    return AbortAttempt(now, absl::StrCat("a cluster is gone: cluster=", name), {std::string(name)});
  }
  return FixIfCollected(now);
}

RoundEffects RoundMachine::OnReady(Time now, absl::string_view name, uint64_t epoch, uint64_t round, uint64_t step,
                                   uint64_t tokens, uint64_t steps) {
  const auto found = clusters_.find(std::string(name));
  if (found == clusters_.end() || found->second.epoch != epoch || round != round_) return {};
  Cluster& cluster = found->second;
  cluster.ready = true;
  cluster.step = step;
  cluster.tokens = tokens;
  cluster.steps = steps;
  return FixIfCollected(now);
}

RoundEffects RoundMachine::FixIfCollected(Time now) {
  if (!started_ || phase_ != Phase::kCollect || clusters_.empty()) return {};
  size_t ready = 0;
  for (const auto& [name, cluster] : clusters_) ready += cluster.ready;
  if (ready == clusters_.size()) return Fix(now, {});
  if (options_.mode == RoundMode::kDeterministic || ready < Quorum()) {
    quorum_since_ = Time::max();
    return {};
  }
  if (quorum_since_ == Time::max()) quorum_since_ = now;
  return now - quorum_since_ >= Grace() ? Fix(now, {}) : RoundEffects{};
}

RoundEffects RoundMachine::Fix(Time now, const std::set<std::string>& without) {
  excluded_.insert(without.begin(), without.end());
  contributors_.clear();
  std::vector<Contribution> contributions;
  std::vector<StageCuts> cuts;
  for (const auto& [name, cluster] : clusters_) {
    if (!cluster.ready || excluded_.count(name) > 0) continue;
    // Who joined during this round has nothing to give yet.
    const bool receives_only = round_ > 1 && cluster.joined_round == round_;
    Contribution contribution{receives_only ? 0 : cluster.tokens, cluster.steps};
    if (cluster.missed >= kHalfWeightAfter) contribution.factor = 0.5;
    contributions.push_back(contribution);
    contributors_.push_back({name, cluster.epoch, cluster.step, contribution.tokens, cluster.steps, 0});
    cuts.push_back(cluster.cuts);
  }
  const std::vector<float> weights = ContributionWeights(options_.weights, contributions);
  float sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    contributors_[i].weight = weights[i];
    sum += weights[i];
  }
  if (contributors_.empty() || sum == 0) return Skip(now, "no cluster has trained on any token");
  auto shards = RefineCuts(cuts);
  if (!shards.ok()) return Skip(now, std::string(shards.status().message()));
  ++attempt_;
  phase_ = Phase::kExchange;
  fixed_ = now;
  proposed_.clear();
  num_shards_ = shards->size();
  RoundEffect fix = Make(RoundEffect::Kind::kFix);
  fix.contributors = contributors_;
  fix.shards = *std::move(shards);
  return {std::move(fix)};
}

RoundEffects RoundMachine::Skip(Time now, const std::string& reason) {
  RoundEffect skip = Make(RoundEffect::Kind::kSkip);
  skip.reason = reason;
  RoundEffects effects = {std::move(skip)};
  Append(&effects, OpenNext(now));
  return effects;
}

RoundEffects RoundMachine::AbortAttempt(Time now, const std::string& reason, const std::set<std::string>& without) {
  RoundEffect abort = Make(RoundEffect::Kind::kAbort);
  abort.reason = reason;
  abort.contributors = contributors_;
  RoundEffects effects = {std::move(abort)};
  contributors_.clear();
  if (options_.mode == RoundMode::kDeterministic) {
    // Repeated with all of them, when those that broke have announced themselves again.
    for (const std::string& name : without) {
      if (const auto found = clusters_.find(name); found != clusters_.end()) found->second.ready = false;
    }
    phase_ = Phase::kCollect;
    Append(&effects, FixIfCollected(now));
    return effects;
  }
  if (attempt_ >= options_.max_attempts) {
    Append(&effects, Skip(now, absl::StrCat(attempt_, " attempts have failed; the last one: ", reason)));
    return effects;
  }
  excluded_.insert(without.begin(), without.end());
  size_t left = 0;
  for (const auto& [name, cluster] : clusters_) left += cluster.ready && excluded_.count(name) == 0;
  if (left < Quorum()) {
    Append(&effects, Skip(now, absl::StrCat("fewer clusters are left than the quorum: left=", left)));
  } else {
    Append(&effects, Fix(now, {}));
  }
  return effects;
}

RoundEffects RoundMachine::OnBroken(Time now, absl::string_view reporter, uint64_t round, uint32_t attempt,
                                    absl::string_view broken) {
  if (phase_ != Phase::kExchange || round != round_ || attempt != attempt_ || !IsContributor(reporter) ||
      !IsContributor(broken)) {
    return {};
  }
  return AbortAttempt(now, absl::StrCat("cluster ", reporter, " lost cluster ", broken), {std::string(broken)});
}

RoundEffects RoundMachine::OnProposed(Time now, absl::string_view cluster, uint64_t round, uint32_t attempt,
                                      uint32_t shard, absl::string_view hash) {
  if (phase_ != Phase::kExchange || round != round_ || attempt != attempt_ || shard >= num_shards_ ||
      !IsContributor(cluster)) {
    return {};
  }
  proposed_[shard][std::string(cluster)] = std::string(hash);
  for (uint32_t s = 0; s < num_shards_; ++s) {
    if (proposed_[s].size() < contributors_.size()) return {};
  }
  return Verify(now);
}

RoundEffects RoundMachine::Verify(Time now) {
  hashes_.clear();
  odd_.clear();
  for (uint32_t shard = 0; shard < num_shards_; ++shard) {
    std::map<std::string, size_t> votes;
    for (const auto& [cluster, hash] : proposed_[shard]) ++votes[hash];
    const auto best =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (2 * best->second <= contributors_.size()) {
      if (++without_majority_ >= 2) {
        phase_ = Phase::kPaused;
        RoundEffect abort = Make(RoundEffect::Kind::kAbort), pause = Make(RoundEffect::Kind::kPause);
        abort.contributors = contributors_;
        abort.reason = pause.reason = absl::StrCat(
            "owners of a shard computed different weights, without a majority, twice in a row; compare their library "
            "versions and memory: round=",
            round_, " shard=", shard);
        return {std::move(abort), std::move(pause)};
      }
      return AbortAttempt(now, absl::StrCat("no majority of equal weights: shard=", shard), {});
    }
    hashes_.push_back(best->first);
    for (const auto& [cluster, hash] : proposed_[shard]) {
      if (hash == best->first) continue;
      RoundEffect fetch = Make(RoundEffect::Kind::kFetch);
      fetch.cluster = cluster;
      fetch.shard = shard;
      fetch.hashes = {best->first};
      fetch.reason = "its weights differ from those of the majority";
      odd_.push_back(std::move(fetch));
    }
  }
  without_majority_ = 0;
  phase_ = Phase::kJournal;
  RoundEffect journal = Make(RoundEffect::Kind::kJournal);
  journal.contributors = contributors_;
  journal.hashes = hashes_;
  return {std::move(journal)};
}

RoundEffects RoundMachine::OnJournaled(Time now, uint64_t round) {
  if (phase_ != Phase::kJournal || round != round_) return {};
  RoundEffect commit = Make(RoundEffect::Kind::kCommit);
  commit.contributors = contributors_;
  commit.hashes = hashes_;
  RoundEffects effects = {std::move(commit)};
  Append(&effects, std::exchange(odd_, {}));
  for (auto& [name, cluster] : clusters_) {
    if (IsContributor(name)) {
      cluster.missed = 0;
      continue;
    }
    ++cluster.missed;
    const bool resync = cluster.missed >= kResyncAfter;
    RoundEffect rebase = Make(resync ? RoundEffect::Kind::kResync : RoundEffect::Kind::kRebase);
    rebase.cluster = name;
    rebase.hashes = hashes_;
    effects.push_back(std::move(rebase));
    // It has dropped its difference: from here on it counts like one that is on time.
    if (resync) cluster.missed = 0;
  }
  Append(&effects, OpenNext(now));
  return effects;
}

RoundEffects RoundMachine::OnTick(Time now) {
  if (phase_ == Phase::kCollect) return FixIfCollected(now);
  if (phase_ != Phase::kExchange || now - fixed_ < options_.exchange_timeout) return {};
  std::set<std::string> silent;
  for (const RoundContributor& contributor : contributors_) {
    bool any = false;
    for (const auto& [shard, hashes] : proposed_) any |= hashes.count(contributor.cluster) > 0;
    if (!any) silent.insert(contributor.cluster);
  }
  // If nobody got through, everybody is tried again.
  if (silent.size() == contributors_.size()) silent.clear();
  return AbortAttempt(now, "the exchange took too long", silent);
}

}  // namespace stagecoach
