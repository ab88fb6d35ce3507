#include "worker/domain/stage_core.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clip_rule.h"

namespace stagecoach {
namespace {

std::string Describe(const Item& item) {
  return item.is_evaluation ? absl::StrCat("evaluation ", item.evaluation, " before microbatch ", item.n)
                            : absl::StrCat("microbatch ", item.n);
}

absl::Status Unexpected(absl::string_view what, const Item& got, const Item& expected) {
  return absl::FailedPreconditionError(absl::StrCat(what, " out of order: expected=", Describe(expected),
                                                    " sequence=", expected.sequence, " got=", Describe(got),
                                                    " sequence=", got.sequence));
}

}  // namespace

StageCore::StageCore(StageCoreConfig config)
    : config_(std::move(config)),
      buffers_(config_.rule.MaxLag() + 2, config_.rule.VersionOf(config_.first_step * M()), config_.first_step),
      rounds_begun_(config_.rounds.BegunBy(config_.first_step)) {
  next_forward_ = next_backward_ = next_input_ = next_gradient_ = config_.order.FirstSequenceAfter(config_.first_step);
  next_norms_step_ = next_own_norms_step_ = next_scalar_step_ = config_.first_step;
  end_sequence_ = config_.order.EndSequence(config_.end_step);
  if (config_.rounds.OpenAfter(config_.first_step, config_.total_steps)) {
    // Committed before the checkpoint was complete.
    round_ = OpenRound{rounds_begun_, config_.rounds.LastBegunBy(config_.first_step), false, true};
  }
}

// ---- events ------------------------------------------------------------------------------------------------------

StageEffects StageCore::Start() {
  std::vector<StageEffect> effects;
  if (config_.rounds.enabled() && config_.first_step == 0) {
    urgent_.push_back(RunPin{0, config_.first_step, buffers_.BufferOfVersion(config_.first_step)});
  }
  QueueStartCaptures();
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnInput(const Item& item) {
  const Item expected = config_.order.At(next_input_);
  if (item != expected) return Unexpected("input", item, expected);
  if (next_input_ >= end_sequence_) {
    return absl::FailedPreconditionError(absl::StrCat("input behind the end of the run: ", Describe(item)));
  }
  if (next_input_ - next_forward_ >= config_.input_window) {
    return absl::ResourceExhaustedError(absl::StrCat("mailbox of inputs is full: window=", config_.input_window));
  }
  ++next_input_;
  std::vector<StageEffect> effects;
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnGradient(const Item& item) {
  const Item expected = config_.order.At(next_gradient_);
  if (item != expected) return Unexpected("gradient", item, expected);
  if (next_gradient_ >= next_forward_) {
    return absl::FailedPreconditionError(absl::StrCat("gradient of what was not sent: ", Describe(item)));
  }
  if (next_gradient_ - next_backward_ >= config_.window) {
    return absl::ResourceExhaustedError(absl::StrCat("mailbox of gradients is full: window=", config_.window));
  }
  ++next_gradient_;
  std::vector<StageEffect> effects;
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnNorms(uint64_t step, std::vector<double> norms) {
  if (step != next_norms_step_ || config_.clip_scope == ClipScope::kStage) {
    return absl::FailedPreconditionError(
        absl::StrCat("norms out of order: expected step=", next_norms_step_, " got=", step));
  }
  // They stand behind the last gradient of their step on the same stream.
  if (next_gradient_ <= config_.order.SequenceOfMicrobatch((step + 1) * M() - 1)) {
    return absl::FailedPreconditionError(absl::StrCat("norms ahead of the last gradient of their step: step=", step));
  }
  ++next_norms_step_;
  norms_below_[step] = std::move(norms);
  std::vector<StageEffect> effects;
  CombineNorms(step, effects);
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnScalar(uint64_t step, double clip, double square_sum, bool skip) {
  if (step != next_scalar_step_ || step >= next_own_norms_step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("clip scalar out of order: expected step=", next_scalar_step_, " got=", step));
  }
  ++next_scalar_step_;
  scalars_[step] = {clip, square_sum, skip};
  std::vector<StageEffect> effects;
  if (!is_last()) effects.push_back(SendScalar{step, clip, square_sum, skip});
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnStop(uint64_t end_step) {
  const uint64_t end = config_.order.EndSequence(end_step);
  if (end_step > config_.end_step || end < next_input_) {
    return absl::FailedPreconditionError(absl::StrCat("impossible stop: end_step=", end_step,
                                                      " planned=", config_.end_step, " next input=", next_input_));
  }
  std::vector<StageEffect> effects;
  EndAfter(end_step, effects);
  Decide(effects);
  return effects;
}

StageEffects StageCore::RequestStop() {
  std::vector<StageEffect> effects;
  if (next_forward_ >= end_sequence_) return effects;
  const uint64_t end_step = NextBoundary();
  if (end_step < config_.end_step) {
    EndAfter(end_step, effects);
    effects.push_back(ReportStopPoint{end_step});
  }
  Decide(effects);
  return effects;
}

uint64_t StageCore::NextBoundary() const {
  if (next_forward_ >= end_sequence_) return config_.end_step;
  // An evaluation item, or the first microbatch of a step, stands at a boundary: nothing of that step was injected.
  return (config_.order.At(next_forward_).n + M() - 1) / M();
}

StageEffects StageCore::HoldForStop() {
  std::vector<StageEffect> effects;
  if (!is_first() || hold_sequence_) return effects;
  const uint64_t step = NextBoundary();
  hold_sequence_ = config_.order.EndSequence(step);
  effects.push_back(ReportStopPoint{step});
  Decide(effects);
  return effects;
}

StageEffects StageCore::StopAfter(uint64_t end_step) {
  if (!is_first() || !hold_sequence_ || end_step > config_.end_step ||
      config_.order.EndSequence(end_step) < *hold_sequence_) {
    return absl::FailedPreconditionError(
        absl::StrCat("impossible stop: end_step=", end_step, " planned=", config_.end_step));
  }
  hold_sequence_.reset();
  std::vector<StageEffect> effects;
  if (end_step < config_.end_step) EndAfter(end_step, effects);
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnSendBlocked(bool forward_blocked, bool backward_blocked) {
  forward_blocked_ = forward_blocked;
  backward_blocked_ = backward_blocked;
  std::vector<StageEffect> effects;
  Decide(effects);
  return effects;
}

StageEffects StageCore::OnComputeDone(std::vector<double> norms) {
  if (!running_.has_value()) return absl::InternalError("a computation ended that was not started");
  const StageEffect done = std::move(*running_);
  running_.reset();
  std::vector<StageEffect> effects;
  if (const auto* forward = std::get_if<RunForward>(&done)) {
    effects.push_back(SendActivation{forward->item});
    if (!is_first()) effects.push_back(ReleaseInput{forward->item});
  } else if (const auto* backward = std::get_if<RunBackward>(&done)) {
    OnBackwardDone(backward->item, effects);
  } else if (const auto* both = std::get_if<RunForwardBackward>(&done)) {
    if (!is_first()) effects.push_back(ReleaseInput{both->item});
    OnBackwardDone(both->item, effects);
  } else if (const auto* evaluation = std::get_if<RunEvaluation>(&done)) {
    if (!is_first()) effects.push_back(ReleaseInput{evaluation->item});
    FinishBackwardItem(evaluation->item, effects);
  } else if (const auto* own_norms = std::get_if<RunNorms>(&done)) {
    next_own_norms_step_ = own_norms->step + 1;
    norms_own_[own_norms->step] = std::move(norms);
    CombineNorms(own_norms->step, effects);
  } else if (const auto* update = std::get_if<RunUpdate>(&done)) {
    OnUpdateDone(*update);
  } else if (const auto* apply = std::get_if<RunApply>(&done)) {
    round_.reset();
    QueueFinishCapture(apply->version, apply->capture_for);
  }
  Decide(effects);
  return effects;
}

// ---- consequences ------------------------------------------------------------------------------------------------

void StageCore::EndAfter(uint64_t end_step, std::vector<StageEffect>& effects) {
  config_.end_step = end_step;
  end_sequence_ = config_.order.EndSequence(end_step);
  if (!is_last()) effects.push_back(SendStop{end_step});
}

// The item's credit is back: its gradient (or Done) goes up, and versions that nobody needs any more become free.
void StageCore::FinishBackwardItem(const Item& item, std::vector<StageEffect>& effects) {
  ++next_backward_;
  if (is_last()) next_gradient_ = next_backward_;
  if (!is_first()) effects.push_back(SendGradient{item});
  buffers_.ReleaseBelow(config_.rule.VersionOf(config_.order.At(next_backward_).n));
}

void StageCore::OnBackwardDone(const Item& item, std::vector<StageEffect>& effects) {
  FinishBackwardItem(item, effects);
  last_was_forward_ = false;
  const uint64_t step = item.n / M();
  if (item.n % M() != M() - 1) return;
  bool first = false;
  urgent_.push_back(RunNorms{step, buffers_.AccumulatorOf(step, &first)});
}

void StageCore::OnUpdateDone(const RunUpdate& update) {
  buffers_.Promote(update.step);
  scalars_.erase(update.step);
  // What no backward needs was kept only because it was the newest.
  buffers_.ReleaseBelow(config_.rule.VersionOf(config_.order.At(next_backward_).n));
  const uint64_t version = update.step + 1;
  if (update.round > 0) round_.reset();
  BeginRoundIfDue(version);
  QueueFinishCapture(version, update.capture_for);
}

void StageCore::QueueFinishCapture(uint64_t version, const std::vector<uint64_t>& captured_for) {
  if (std::find(captured_for.begin(), captured_for.end(), version) == captured_for.end()) return;
  urgent_.push_back(RunFinishCapture{version});
}

// Once the sums of this stage and of all below are there: decide (stage 0), or pass them on.
void StageCore::CombineNorms(uint64_t step, std::vector<StageEffect>& effects) {
  const auto own = norms_own_.find(step);
  if (own == norms_own_.end()) return;
  const bool alone = config_.clip_scope == ClipScope::kStage || is_last();
  const auto below = norms_below_.find(step);
  if (!alone && below == norms_below_.end()) return;
  std::vector<double> norms = std::move(own->second);
  norms_own_.erase(own);
  if (!alone) {
    norms.insert(norms.end(), below->second.begin(), below->second.end());
    norms_below_.erase(below);
  }
  if (!is_first() && config_.clip_scope != ClipScope::kStage) {
    effects.push_back(SendNorms{step, std::move(norms)});
    return;
  }
  const double clip_norm = config_.clip_scope == ClipScope::kStage
                               ? StageClipNorm(config_.clip_norm, config_.num_stages)
                               : config_.clip_norm;
  const ClipDecision decision = DecideClip(norms, config_.clip_scope, clip_norm);
  ++next_scalar_step_;
  scalars_[step] = decision;
  if (!is_last() && config_.clip_scope != ClipScope::kStage) {
    effects.push_back(SendScalar{step, decision.clip, decision.square_sum, decision.skip});
  }
  effects.push_back(ReportScalar{step, decision.clip, decision.square_sum, decision.skip});
}

// ---- checkpoints -------------------------------------------------------------------------------------------------

uint64_t StageCore::OldestVersionAfter(uint64_t step) const { return config_.rule.VersionOf(step * M()); }

std::vector<uint64_t> StageCore::CheckpointsThatNeed(uint64_t version) const {
  std::vector<uint64_t> steps;
  if (config_.checkpoint_every == 0) return steps;
  const uint64_t every = config_.checkpoint_every;
  for (uint64_t step = (version + every - 1) / every * every;
       step <= config_.end_step && step <= version + config_.rule.MaxLag(); step += every) {
    // The last round changes the last version: its checkpoint is made at the end.
    if (config_.rounds.enabled() && step == config_.total_steps) break;
    if (step > config_.first_step && OldestVersionAfter(step) <= version) steps.push_back(step);
  }
  return steps;
}

void StageCore::QueueStartCaptures() {
  for (const uint64_t step : CheckpointsThatNeed(config_.first_step)) {
    RunCapture capture{step, {}};
    for (uint64_t v = OldestVersionAfter(step); v <= config_.first_step; ++v) {
      capture.version_and_buffer.emplace_back(v, buffers_.BufferOfVersion(v));
    }
    urgent_.push_back(std::move(capture));
  }
}

// ---- decisions ---------------------------------------------------------------------------------------------------

uint64_t StageCore::VersionFor(const Item& item) const {
  if (item.is_evaluation && item.n == config_.total_steps * M()) return config_.total_steps;
  return config_.rule.VersionOf(item.n);
}

bool StageCore::CanForward(WaitReason* why_not) const {
  if (next_forward_ >= end_sequence_) {
    *why_not = WaitReason::kGradient;
  } else if ((hold_sequence_ && next_forward_ >= *hold_sequence_) || (!is_first() && next_input_ <= next_forward_)) {
    *why_not = WaitReason::kInput;
  } else if (const uint64_t version = VersionFor(config_.order.At(next_forward_)); Sealed(version)) {
    *why_not = WaitReason::kRound;
  } else if (!buffers_.HasVersion(version)) {
    *why_not = buffers_.newest() >= next_own_norms_step_    ? WaitReason::kVersion
               : MakingWaitsForRound(buffers_.newest() + 1) ? WaitReason::kRound
                                                            : WaitReason::kScalar;
  } else if (is_last() ? backward_blocked_ : forward_blocked_) {
    *why_not = WaitReason::kSend;
  } else if (!is_last() && next_forward_ - next_backward_ >= config_.window) {
    *why_not = WaitReason::kCredit;
  } else {
    return true;
  }
  return false;
}

bool StageCore::CanBackward() const {
  if (is_last() || next_gradient_ <= next_backward_ || backward_blocked_) return false;
  if (config_.policy == StagePolicy::kAlternate || next_forward_ >= end_sequence_) return true;
  // All forwards of the step first, as far as the window reaches.
  const uint64_t step = config_.order.At(next_backward_).n / M();
  return config_.order.At(next_forward_).n / M() > step || next_forward_ - next_backward_ >= config_.window;
}

void StageCore::Decide(std::vector<StageEffect>& effects) {
  // Evaluation items compute nothing on the way back.
  while (!is_last() && next_gradient_ > next_backward_ && config_.order.At(next_backward_).is_evaluation) {
    FinishBackwardItem(config_.order.At(next_backward_), effects);
  }
  wait_reason_ = WaitReason::kNone;
  if (running_.has_value() || finished_) return;
  if (!urgent_.empty()) {
    StageEffect next = std::move(urgent_.front());
    urgent_.pop_front();
    return Run(std::move(next), effects);
  }
  const bool held = MakingWaitsForRound(buffers_.newest() + 1);
  if (scalars_.count(buffers_.newest()) != 0 && !held) return RunNextUpdate(effects);
  WaitReason why_not = WaitReason::kNone;
  const bool can_forward = CanForward(&why_not);
  const bool can_backward = CanBackward();
  const bool prefer_backward = config_.policy == StagePolicy::kAlternate && last_was_forward_;
  if (can_backward && (prefer_backward || !can_forward)) return RunNextBackward(effects);
  if (can_forward) return RunNextForward(effects);
  if (next_backward_ == end_sequence_ && buffers_.newest() == config_.end_step) {
    if (!Sealed(config_.end_step)) return Finish(effects);
    wait_reason_ = WaitReason::kRound;
    return;
  }
  const WaitReason at_end = held ? WaitReason::kRound : WaitReason::kScalar;
  wait_reason_ = next_backward_ == end_sequence_ ? at_end : why_not;
}

void StageCore::Run(StageEffect effect, std::vector<StageEffect>& effects) {
  if (const auto* finish = std::get_if<RunFinishCapture>(&effect)) last_checkpoint_ = finish->checkpoint_step;
  running_ = effect;
  effects.push_back(std::move(effect));
}

void StageCore::RunNextForward(std::vector<StageEffect>& effects) {
  const Item item = config_.order.At(next_forward_++);
  const uint32_t weights = buffers_.BufferOfVersion(VersionFor(item));
  last_was_forward_ = true;
  if (!is_last()) return Run(RunForward{item, weights}, effects);
  if (item.is_evaluation) return Run(RunEvaluation{item, weights}, effects);
  bool first = false;
  const uint32_t gradient = buffers_.AccumulatorOf(item.n / M(), &first);
  Run(RunForwardBackward{item, weights, gradient, first}, effects);
}

void StageCore::RunNextBackward(std::vector<StageEffect>& effects) {
  const Item item = config_.order.At(next_backward_);
  const uint32_t weights = buffers_.BufferOfVersion(VersionFor(item));
  bool first = false;
  const uint32_t gradient = buffers_.AccumulatorOf(item.n / M(), &first);
  Run(RunBackward{item, weights, gradient, first}, effects);
}

void StageCore::RunNextUpdate(std::vector<StageEffect>& effects) {
  const uint64_t step = buffers_.newest();
  const ClipDecision& scalar = scalars_[step];
  bool first = false;
  // A version that a round replaces is captured behind that.
  const bool replaced = config_.rounds.IsRound(step + 1) && config_.rounds.delay_steps == 0;
  Run(RunUpdate{step, buffers_.BufferOfVersion(step), buffers_.AccumulatorOf(step, &first), scalar.clip, scalar.skip,
                replaced ? std::vector<uint64_t>() : CheckpointsThatNeed(step + 1),
                RoundEnters(step + 1) ? round_->round : 0},
      effects);
}

// Drained, every update applied: the versions that the next step needs are all alive.
void StageCore::Finish(std::vector<StageEffect>& effects) {
  const uint64_t step = config_.end_step;
  const bool nothing_new = step == config_.first_step && step > 0;
  if (last_checkpoint_ == step || nothing_new) {
    finished_ = true;
    effects.push_back(StageFinished{step});
    return;
  }
  RunCapture capture{step, {}};
  for (uint64_t v = OldestVersionAfter(step); v <= step; ++v) {
    capture.version_and_buffer.emplace_back(v, buffers_.BufferOfVersion(v));
  }
  urgent_.push_back(RunFinishCapture{step});
  Run(std::move(capture), effects);
}

ClipDecision DecideClip(const std::vector<double>& norms_in_canonical_order, ClipScope scope, double clip_norm) {
  ClipDecision decision;
  decision.square_sum = SumInOrder(norms_in_canonical_order);
  decision.skip = !std::isfinite(decision.square_sum);
  if (!decision.skip && scope != ClipScope::kNone) decision.clip = ClipFactor(decision.square_sum, clip_norm);
  return decision;
}

}  // namespace stagecoach
