#include "coordinator/service/run_rounds.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/round_schedule.h"
#include "common/sha256.h"

namespace stagecoach {
namespace {

// Sorts like the number: ranks of an exchange are cluster numbers.
std::string KeyOf(size_t cluster) { return absl::StrFormat("%04d", static_cast<int>(cluster)); }

// A lost worker ends the run long before, and so does a run in which nothing moves: this is for an exchange that goes
// on and does not end.
constexpr auto kExchangeTimeout = std::chrono::hours(1);

constexpr uint32_t kMaxAttempts = 3;

RoundMachine::Options MachineOptions() {
  RoundMachine::Options options;
  options.mode = RoundMode::kDeterministic;
  options.exchange_timeout = kExchangeTimeout;
  return options;
}

bool IsHexDigest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

double Seconds(MonoTime time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

bool RunRounds::Has(const RunRecord& record) {
  return record.clusters_size() > 1 && record.spec().averaging().wire() != AVERAGING_WIRE_UNSPECIFIED;
}

RunRounds::RunRounds(const RunRecord& record, uint64_t epoch, uint64_t first_step, Surroundings around)
    : epoch_(epoch),
      tokens_per_step_(uint64_t{record.spec().schedule().microbatches()} * record.spec().schedule().sequences() *
                       record.spec().schedule().sequence_tokens()),
      around_(std::move(around)),
      machine_(MachineOptions()) {
  const RoundSchedule schedule{record.spec().averaging().every_steps(), record.spec().averaging().delay_steps()};
  first_round_ = schedule.BegunBy(first_step) + 1;
  last_step_ = schedule.LastBegunBy(first_step);
  for (const ClusterRecord& row : record.clusters()) {
    StageCuts& cuts = cuts_.emplace_back();
    cuts.push_back(0);
    cuts.insert(cuts.end(), row.cuts().begin(), row.cuts().end());
    cuts.push_back(record.spec().model().layers() + 2);
  }
}

void RunRounds::Start(MonoTime now) {
  auto shards = RefineCuts(cuts_);
  absl::Status status = shards.status();
  if (status.ok()) shards_ = *std::move(shards);
  for (size_t c = 0; status.ok() && c < cuts_.size(); ++c) status = machine_.AddCluster(KeyOf(c), epoch_, cuts_[c]);
  if (!status.ok()) return around_.fatal(std::string(status.message()));
  Perform(now, machine_.Start(now, first_round_));
}

absl::Status RunRounds::OnReady(MonoTime now, size_t cluster, size_t stage, const RoundReady& ready) {
  if (ready.round() != machine_.round() || machine_.phase() != RoundMachine::Phase::kCollect) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ready for round ", ready.round(), ", open is ", machine_.round()));
  }
  if (ready_.empty()) {
    step_ = ready.step();
    first_ready_ = now;
  }
  if (ready.step() != step_ || step_ <= last_step_) {
    return absl::InvalidArgumentError(absl::StrCat("takes part in round ", ready.round(), " with the weights of step ",
                                                   ready.step(), ", others with those of step ", step_));
  }
  std::set<size_t>& stages = ready_[cluster];
  stages.insert(stage);
  if (stages.size() + 1 < cuts_[cluster].size()) return absl::OkStatus();
  all_ready_ = now;
  Announce(now, cluster);
  return absl::OkStatus();
}

void RunRounds::Announce(MonoTime now, size_t cluster) {
  const uint64_t steps = step_ - last_step_;
  Perform(now, machine_.OnReady(now, KeyOf(cluster), epoch_, machine_.round(), step_, steps * tokens_per_step_, steps));
}

absl::Status RunRounds::OnProposal(MonoTime now, size_t cluster, size_t stage, const RoundProposal& proposal) {
  const bool known = proposal.shard() < shards_.size() && shards_[proposal.shard()].owner[cluster] == stage;
  if (!known || !IsHexDigest(proposal.hash())) {
    return absl::InvalidArgumentError(absl::StrCat("proposes a result of shard ", proposal.shard(),
                                                   known ? " without a hash" : ", which it does not hold"));
  }
  Perform(now, machine_.OnProposed(now, KeyOf(cluster), proposal.round(), proposal.attempt(), proposal.shard(),
                                   proposal.hash()));
  return absl::OkStatus();
}

void RunRounds::OnJournaled(MonoTime now, uint64_t round) { Perform(now, machine_.OnJournaled(now, round)); }

void RunRounds::OnTick(MonoTime now) {
  Perform(now, machine_.OnTick(now));
  if (machine_.phase() != RoundMachine::Phase::kCollect || ready_.size() < cuts_.size()) return;
  // An attempt was broken off: stages keep what they contribute, so those that were blamed are ready again.
  for (const auto& [cluster, stages] : ready_) {
    if (stages.size() + 1 < cuts_[cluster].size()) return;
  }
  for (size_t c = 0; c < cuts_.size(); ++c) Announce(now, c);
}

void RunRounds::SendFix(const RoundEffect& fix) {
  CoordinatorMessage message;
  RoundFix* out = message.mutable_round_fix();
  out->set_epoch(epoch_);
  out->set_round(fix.round);
  out->set_attempt(fix.attempt);
  for (const RoundContributor& contributor : fix.contributors) out->add_weights(contributor.weight);
  around_.send_to_all(message);
}

void RunRounds::Perform(MonoTime now, const RoundEffects& effects) {
  for (const RoundEffect& effect : effects) {
    switch (effect.kind) {
      case RoundEffect::Kind::kOpen:  // stages know by their own steps when they take part
        break;
      case RoundEffect::Kind::kFix:
        if (effect.attempt > kMaxAttempts) {
          return around_.fatal(absl::StrCat("round ", effect.round, " at step ", step_, ": ", kMaxAttempts,
                                            " attempts at the exchange did not end in time"));
        }
        SendFix(effect);
        break;
      case RoundEffect::Kind::kAbort: {
        CoordinatorMessage message;
        RoundAbort* out = message.mutable_round_abort();
        out->set_epoch(epoch_);
        out->set_round(effect.round);
        out->set_attempt(effect.attempt);
        out->set_reason(effect.reason);
        around_.send_to_all(message);
        break;
      }
      case RoundEffect::Kind::kJournal:
        around_.journal(effect.round, step_, Sha256Hex(absl::StrJoin(effect.hashes, "")));
        break;
      case RoundEffect::Kind::kCommit: {
        ++committed_;
        exchange_seconds_ += Seconds(now - all_ready_);
        wait_seconds_ += Seconds(all_ready_ - first_ready_);
        last_step_ = step_;
        ready_.clear();
        CoordinatorMessage message;
        RoundCommit* out = message.mutable_round_commit();
        out->set_epoch(epoch_);
        out->set_round(effect.round);
        out->set_attempt(effect.attempt);
        for (const std::string& hash : effect.hashes) out->add_hashes(hash);
        around_.send_to_all(message);
        break;
      }
      case RoundEffect::Kind::kFetch:
        return around_.fatal(absl::StrCat("round ", effect.round, " at step ", step_, ": cluster ", effect.cluster,
                                          " computed other weights of shard ", effect.shard,
                                          " than the other clusters; compare its library and its memory"));
      case RoundEffect::Kind::kRebase:
      case RoundEffect::Kind::kResync:  // never in this mode: nobody is left out
      case RoundEffect::Kind::kSkip:
      case RoundEffect::Kind::kPause:
        return around_.fatal(
            absl::StrCat("round ", effect.round, " at step ", step_, " has no result: ", effect.reason));
    }
  }
}

}  // namespace stagecoach
