// Rounds with other clusters: what StageCore makes wait for them, and how a life ends with one.
#include "absl/strings/str_cat.h"
#include "worker/domain/stage_core.h"

namespace stagecoach {

StageEffects StageCore::OnRoundResult(uint64_t round) {
  if (!round_ || round_->round != round || round_->arrived) {
    return absl::FailedPreconditionError(
        absl::StrCat("result of a round that is not open: round=", round, " begun=", rounds_begun_));
  }
  round_->arrived = true;
  if (round_->replaces) urgent_.push_back(ApplyTo(round_->version, /*replace=*/true));
  std::vector<StageEffect> effects;
  Decide(effects);
  return effects;
}

bool StageCore::RoundEnters(uint64_t version) const {
  return round_ && !round_->replaces && config_.rounds.EntersAt(round_->version, config_.total_steps) == version;
}

// Also: the next version is made from the one before it, as the round leaves that.
bool StageCore::MakingWaitsForRound(uint64_t version) const {
  return (RoundEnters(version) && !round_->arrived) || Sealed(version - 1);
}

void StageCore::BeginRound(uint64_t version, bool replaces) {
  round_ = OpenRound{++rounds_begun_, version, replaces, false};
  last_round_version_ = version;
  urgent_.push_back(RunPin{rounds_begun_, version, buffers_.BufferOfVersion(version)});
}

// Called when `version` has just been made. The last round of the whole run begins here, so that the evaluation behind
// it sees what it left; that of a life which ends earlier begins when everything has drained (ConcludeRounds), because
// other stages may have made the version before they hear of the end.
void StageCore::BeginRoundIfDue(uint64_t version) {
  if (!config_.rounds.enabled()) return;
  if (version == config_.total_steps) {
    BeginRound(version, /*replaces=*/true);
  } else if (config_.rounds.IsRound(version)) {
    BeginRound(version, config_.rounds.delay_steps == 0);
  }
}

RunApply StageCore::ApplyTo(uint64_t version, bool replace) const {
  const bool captured = config_.rounds.delay_steps == 0 && version != planned_end_ && config_.rounds.IsRound(version);
  return {round_->round, buffers_.BufferOfVersion(version), replace, version,
          captured ? CheckpointsThatNeed(version) : std::vector<uint64_t>()};
}

// The pipeline has drained after the last step of this life: its weights become the common ones. False: something is
// under way or awaited.
bool StageCore::ConcludeRounds(std::vector<StageEffect>& effects) {
  const uint64_t end = config_.end_step;
  if (!config_.rounds.enabled() || end == config_.first_step) return true;
  if (!round_ && last_round_version_ == end) return true;
  if (!round_) {
    BeginRound(end, /*replaces=*/true);
    StageEffect pin = std::move(urgent_.front());
    urgent_.pop_front();
    Run(std::move(pin), effects);
    return false;
  }
  if (!round_->arrived) {
    // A round that began at the end without knowing it.
    round_->replaces |= round_->version == end;
    wait_reason_ = WaitReason::kRound;
    return false;
  }
  Run(ApplyTo(end, /*replace=*/round_->version == end), effects);
  return false;
}

}  // namespace stagecoach
