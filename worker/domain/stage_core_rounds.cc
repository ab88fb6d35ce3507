// Rounds with other clusters: when they begin, and what StageCore makes wait for them.
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
  urgent_.push_back(RunPin{rounds_begun_, version, buffers_.BufferOfVersion(version)});
}

// Called when `version` has just been made. The evaluation behind the last round sees what it left.
void StageCore::BeginRoundIfDue(uint64_t version) {
  if (!config_.rounds.enabled()) return;
  if (version == config_.total_steps) {
    BeginRound(version, /*replaces=*/true);
  } else if (config_.rounds.IsRound(version)) {
    BeginRound(version, config_.rounds.delay_steps == 0);
  }
}

RunApply StageCore::ApplyTo(uint64_t version, bool replace) const {
  const bool captured = config_.rounds.delay_steps == 0 && config_.rounds.IsRound(version);
  return {round_->round, buffers_.BufferOfVersion(version), replace, version,
          captured ? CheckpointsThatNeed(version) : std::vector<uint64_t>()};
}

}  // namespace stagecoach
