// Decides what one stage does next: which microbatch goes forward or backward, with which weights, when the update
// runs, what is sent to the neighbours. Pure: events in, effects out; the same code runs in the worker and in the
// simulator.
//
//   on free compute lane:
//     canF = next item's input present and its version exists and in-flight < N_i and the send side is not blocked
//     canB = gradient (or Done) of the next backward item present
//     pending update with its scalar: first.  Else alternate F and B, never idle when work exists (kAlternate), or
//     all forwards of a step before its backwards (kForwardsFirst).
//
// Rounds with other clusters (common/round_schedule.h): a version at a round step is pinned; the version that the
// result enters is not made before the result is there, everything else goes on. Where the result replaces the version
// itself (tau_a = 0, and the last version of the run) that version is not used before. A life that ends earlier changes
// none of this: the result of a round that is open then enters in the next life.
//
// The owner (StageRunner) keeps payloads by item sequence; the core knows only that they are there. At most one compute
// effect is outstanding at a time.
//
// Threading: confined to the worker loop (or the simulator). Never blocks, never calls out, reads no clock.
// Errors: FAILED_PRECONDITION/INVALID_ARGUMENT when a peer broke the protocol (the run then fails with that text);
// an invariant of ours that breaks is a fatal assertion.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/round_schedule.h"
#include "common/schedule_rules.h"
#include "worker/domain/buffer_rotation.h"

namespace stagecoach {

enum class StagePolicy { kAlternate, kForwardsFirst };  // kForwardsFirst needs J = 0 and window >= M
enum class ClipScope { kGlobal, kStage, kNone };        // kNone: c_t = 1, the skip flag is still exact and global

struct StageCoreConfig {
  uint32_t stage = 0, num_stages = 1;
  uint32_t window = 1;        // N_i
  uint32_t input_window = 0;  // N_{i-1}: most inputs that may wait here; stage 0 has none
  VersionRule rule{1, {{0, 0}}};
  ItemOrder order{1, 1, 0, 0};
  uint64_t total_steps = 1;  // of the schedule; the evaluation after it uses W^(total_steps)
  uint64_t first_step = 0;   // steps already applied (checkpoint)
  uint64_t end_step = 1;     // this life ends after so many steps, with a checkpoint
  uint64_t checkpoint_every = 0;
  StagePolicy policy = StagePolicy::kAlternate;
  ClipScope clip_scope = ClipScope::kGlobal;
  double clip_norm = 1.0;  // kStage: each stage uses clip_norm / sqrt(num_stages)
  RoundSchedule rounds;    // with other clusters
};

// ---- effects -----------------------------------------------------------------------------------------------------
// Compute effects: the owner runs them on the compute lane and answers with OnComputeDone.
struct RunForward {
  Item item;
  uint32_t weights_buffer;
};
struct RunBackward {
  Item item;
  uint32_t weights_buffer, gradient_buffer;
  bool first;
};
struct RunForwardBackward {
  Item item;
  uint32_t weights_buffer, gradient_buffer;
  bool first;
};  // last stage
struct RunEvaluation {
  Item item;
  uint32_t weights_buffer;
};  // last stage
struct RunNorms {
  uint64_t step;
  uint32_t gradient_buffer;
};
struct RunUpdate {
  uint64_t step;
  uint32_t weights_buffer, gradient_buffer;
  double clip;
  bool skip;
  std::vector<uint64_t> capture_for;  // CaptureWeights(version step+1) for each of these checkpoint steps
  uint64_t round = 0;                 // not 0: the result of this round enters the new version, additively
};
// Copies the weights out: what this stage contributes to the round. Round 0, when a run begins: the common weights that
// the first differences are taken from.
struct RunPin {
  uint64_t round, version;
  uint32_t weights_buffer;
};
// The result of the round enters a version that nothing uses.
struct RunApply {
  uint64_t round;
  uint32_t weights_buffer;
  bool replace;  // else additively
  uint64_t version;
  std::vector<uint64_t> capture_for;  // as in RunUpdate
};
// Copies of live versions for the checkpoint at the end of this life (they are all alive then), before FinishCapture.
struct RunCapture {
  uint64_t checkpoint_step;
  std::vector<std::pair<uint64_t, uint32_t>> version_and_buffer;
};
struct RunFinishCapture {
  uint64_t checkpoint_step;
};
// Sends. The payload is the result of the compute effect that has just been reported done, unless given here.
struct SendActivation {
  Item item;
};  // forward; FRAME_KIND_ACTIVATION or EVALUATION
struct SendGradient {
  Item item;
};  // backward; GRADIENT, or DONE for an evaluation item
struct SendNorms {
  uint64_t step;
  std::vector<double> norms;
};
struct SendScalar {
  uint64_t step;
  double clip, square_sum;
  bool skip;
};
struct SendStop {
  uint64_t end_step;
};
// Reports.
struct ReleaseInput {
  Item item;
};  // the owner may drop the payload of this item's input (a credit is used up)
struct ReportScalar {
  uint64_t step;
  double clip, square_sum;
  bool skip;
};  // stage 0 (kStage: every stage, own S)
struct ReportStopPoint {
  uint64_t end_step;
};  // stage 0
struct StageFinished {
  uint64_t steps_done;
};

using StageEffect =
    std::variant<RunForward, RunBackward, RunForwardBackward, RunEvaluation, RunNorms, RunUpdate, RunPin, RunApply,
                 RunCapture, RunFinishCapture, SendActivation, SendGradient, SendNorms, SendScalar, SendStop,
                 ReleaseInput, ReportScalar, ReportStopPoint, StageFinished>;
using StageEffects = absl::StatusOr<std::vector<StageEffect>>;

// c_t = min(1, clip / (sqrt(S) + 1e-6)), S summed in the given order; not finite -> skip.
struct ClipDecision {
  double clip = 1, square_sum = 0;
  bool skip = false;
};

enum class WaitReason { kNone, kInput, kGradient, kCredit, kVersion, kScalar, kSend, kRound };

class StageCore {
 public:
  explicit StageCore(StageCoreConfig config);

  StageEffects Start();
  StageEffects OnInput(const Item& item);                          // activation or evaluation frame from above
  StageEffects OnGradient(const Item& item);                       // gradient or Done frame from below
  StageEffects OnNorms(uint64_t step, std::vector<double> norms);  // from below
  StageEffects OnScalar(uint64_t step, double clip, double square_sum, bool skip);  // from above
  StageEffects OnStop(uint64_t end_step);                                           // from above
  StageEffects RequestStop();  // stage 0: end at the next step boundary possible
  // Stage 0 of one of several clusters, which must end after the same step: HoldForStop injects nothing behind the next
  // step boundary and reports it; StopAfter ends there or later, and releases the hold.
  StageEffects HoldForStop();
  StageEffects StopAfter(uint64_t end_step);
  StageEffects OnSendBlocked(bool forward_blocked, bool backward_blocked);
  StageEffects OnRoundResult(uint64_t round);  // committed, and here
  // The outstanding compute effect has ended. `norms` only after RunNorms.
  StageEffects OnComputeDone(std::vector<double> norms = {});

  bool computing() const { return running_.has_value(); }
  WaitReason wait_reason() const {
    return wait_reason_;
  }  // why the compute lane is idle now; kNone while computing or finished
  bool finished() const { return finished_; }
  uint64_t next_forward() const { return next_forward_; }    // sequence
  uint64_t next_backward() const { return next_backward_; }  // sequence
  uint64_t newest_version() const { return buffers_.newest(); }
  uint64_t rounds_begun() const { return rounds_begun_; }  // of the run, up to the newest version
  const BufferRotation& buffers() const { return buffers_; }

 private:
  uint32_t M() const { return config_.rule.microbatches_per_step(); }
  bool is_first() const { return config_.stage == 0; }
  bool is_last() const { return config_.stage + 1 == config_.num_stages; }

  void EndAfter(uint64_t end_step, std::vector<StageEffect>& effects);
  void FinishBackwardItem(const Item& item, std::vector<StageEffect>& effects);
  void OnBackwardDone(const Item& item, std::vector<StageEffect>& effects);
  void OnUpdateDone(const RunUpdate& update);
  void CombineNorms(uint64_t step, std::vector<StageEffect>& effects);

  uint64_t OldestVersionAfter(uint64_t step) const;  // what the first microbatch after `step` steps needs
  std::vector<uint64_t> CheckpointsThatNeed(uint64_t version) const;
  void QueueStartCaptures();
  void QueueFinishCapture(uint64_t version, const std::vector<uint64_t>& captured_for);

  // Rounds (stage_core_rounds.cc).
  struct OpenRound {
    uint64_t round = 0, version = 0;
    bool replaces = false, arrived = false;  // replaces: the version is not used before the result is in it
  };
  bool Sealed(uint64_t version) const { return round_ && round_->replaces && round_->version == version; }
  bool RoundEnters(uint64_t version) const;
  bool MakingWaitsForRound(uint64_t version) const;
  void BeginRound(uint64_t version, bool replaces);
  void BeginRoundIfDue(uint64_t version);
  RunApply ApplyTo(uint64_t version, bool replace) const;

  uint64_t NextBoundary() const;  // steps done when nothing more is injected behind the step that is under way
  uint64_t VersionFor(const Item& item) const;
  bool CanForward(WaitReason* why_not) const;
  bool CanBackward() const;
  void Decide(std::vector<StageEffect>& effects);
  void Run(StageEffect effect, std::vector<StageEffect>& effects);
  void RunNextForward(std::vector<StageEffect>& effects);
  void RunNextBackward(std::vector<StageEffect>& effects);
  void RunNextUpdate(std::vector<StageEffect>& effects);
  void Finish(std::vector<StageEffect>& effects);

  StageCoreConfig config_;
  BufferRotation buffers_;
  uint64_t end_sequence_ = 0;
  std::optional<uint64_t> hold_sequence_;  // nothing from here on is injected until StopAfter
  // Next item by sequence: to start forward, to end backward, to arrive from above, to come back from below.
  uint64_t next_forward_ = 0, next_backward_ = 0, next_input_ = 0, next_gradient_ = 0;
  // Next step: whose norms arrive from below, whose own norms are computed, whose scalar is known.
  uint64_t next_norms_step_ = 0, next_own_norms_step_ = 0, next_scalar_step_ = 0;
  std::map<uint64_t, std::vector<double>> norms_own_, norms_below_;  // by step; at most the live steps: tau + 1
  std::map<uint64_t, ClipDecision> scalars_;                         // known, update not yet done
  std::deque<StageEffect> urgent_;  // norms and captures: before anything else computes
  std::optional<StageEffect> running_;
  std::optional<uint64_t> last_checkpoint_;
  std::optional<OpenRound> round_;
  uint64_t rounds_begun_ = 0;
  bool last_was_forward_ = false, forward_blocked_ = false, backward_blocked_ = false, finished_ = false;
  WaitReason wait_reason_ = WaitReason::kNone;
};

ClipDecision DecideClip(const std::vector<double>& norms_in_canonical_order, ClipScope scope, double clip_norm);

}  // namespace stagecoach
