#include "worker/main/stage_runner.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "protos/link.pb.h"
#include "worker/main/checkpoint_writer.h"

namespace stagecoach {
namespace {

// Checkpoints whose host copies may wait for the disk at once: one being written and one behind it. A third would let a
// slow disk fill the memory; the stage then waits before it hands over the next one.
constexpr int kMaxCheckpointsWriting = 2;

// Control payloads (norms, scalars) that wait in the send queues: a few hundred bytes to a few kilobytes each.
constexpr size_t kControlPoolBytes = 64u << 20;

template <typename T>
constexpr bool IsComputeEffect = std::is_constructible_v<ComputeEffect, T>;

}  // namespace

std::shared_ptr<StageRunner> StageRunner::Create(StageSetup setup, StageLoops loops, StageEvents events) {
  return std::shared_ptr<StageRunner>(new StageRunner(std::move(setup), loops, std::move(events)));
}

StageRunner::StageRunner(StageSetup setup, StageLoops loops, StageEvents events)
    : setup_(std::move(setup)),
      loops_(loops),
      control_pool_(HostBufferPool::Create(kControlPoolBytes)),
      events_(std::move(events)),
      core_(setup_.core),
      next_input_(setup_.core.order.FirstSequenceAfter(setup_.core.first_step)),
      next_gradient_(next_input_) {}

StageRunner::~StageRunner() = default;

void StageRunner::OnRound(const CoordinatorMessage& message) {
  if (closed_ || !rounds_) return;
  if (message.has_round_fix()) rounds_->OnFix(message.round_fix());
  if (message.has_round_abort()) rounds_->OnAbort(message.round_abort());
  if (message.has_round_commit()) rounds_->OnCommit(message.round_commit());
}

void StageRunner::OnRoundResult(uint64_t round, RoundValues values) {
  if (closed_) return;
  round_values_ = std::move(values);
  Apply(core_.OnRoundResult(round), "");
}

void StageRunner::SetExecutor(std::shared_ptr<StageExecutor> executor, std::optional<CommonState> common) {
  if (closed_) return;
  common_ = std::move(common);
  executor_ = std::move(executor);
  unit_parameters_ = executor_->unit_parameters();  // before the compute loop uses it
  MaybeReady();
}

bool StageRunner::ready() const {
  const auto up = [](const std::optional<NeighbourLink>& link, const Stream& stream) {
    return !link || (stream.sender_up && stream.receiver_up);
  };
  return links_open_ && executor_ != nullptr && up(setup_.above, above_) && up(setup_.below, below_);
}

void StageRunner::MaybeReady() {
  if (closed_ || reported_ready_ || !ready()) return;
  reported_ready_ = true;
  events_.on_ready();
}

void StageRunner::Start() {
  if (closed_ || started_) return;
  if (!ready()) return Fail(absl::FailedPreconditionError("stage was started before it was ready"), "");
  started_ = true;
  if (rounds_ && common_) {
    if (!common_->pinned.empty()) {
      pinned_ = std::make_shared<const std::vector<float>>(std::move(common_->pinned));
      round_values_ = {pinned_, std::make_shared<const std::vector<float>>(common_->theta)};
    }
    rounds_->Restore(*std::move(common_), unit_parameters_);
    common_.reset();
  }
  Apply(core_.Start(), "");
  while (!closed_ && !early_frames_.empty()) {
    auto [side, frame] = std::move(early_frames_.front());
    early_frames_.pop_front();
    Apply(FrameToEvent(side, std::move(frame)), PeerOf(side));
  }
}

void StageRunner::RequestStop() {
  if (closed_ || !started_) return;
  Apply(core_.RequestStop(), "");
}

void StageRunner::HoldForStop() {
  if (closed_ || !started_) return;
  Apply(core_.HoldForStop(), "");
}

void StageRunner::StopAfter(uint64_t end_step) {
  if (closed_ || !started_) return;
  Apply(core_.StopAfter(end_step), "");
}

void StageRunner::Close() {
  if (closed_) return;
  closed_ = true;
  events_ = StageEvents{};
  early_frames_.clear();
  inputs_.clear();
  gradients_.clear();
  output_ = Payload{};
  rounds_.reset();
  pinned_.reset();
  round_values_ = RoundValues{};
  without_common_.clear();
  // Streams are dropped from a function of their own, because Close may be called from inside one of their callbacks.
  loops_.worker->Post(
      [above = std::make_shared<Stream>(std::move(above_)), below = std::make_shared<Stream>(std::move(below_))] {});
  // Weights are freed where they live, behind the operation that may still be running.
  loops_.compute->Post([executor = std::move(executor_)]() mutable { executor.reset(); });
}

void StageRunner::Fail(absl::Status status, const std::string& peer) {
  if (closed_) return;
  auto on_failed = events_.on_failed;
  Close();
  if (on_failed) on_failed(std::move(status), peer);
}

void StageRunner::Apply(StageEffects effects, const std::string& peer) {
  for (;;) {
    if (closed_) return;
    if (!effects.ok()) return Fail(effects.status(), peer);
    for (StageEffect& effect : *effects) {
      const absl::Status status = Perform(std::move(effect));
      if (!status.ok()) return Fail(status, "");
      if (closed_) return;
    }
    if (!UpdateBlocked()) break;
    effects = core_.OnSendBlocked(below_.blocked, above_.blocked);
  }
  Measure();
  MaybeFinished();
}

absl::Status StageRunner::Perform(StageEffect effect) {
  return std::visit(
      [this](auto& it) -> absl::Status {
        using T = std::decay_t<decltype(it)>;
        if constexpr (IsComputeEffect<T>) {
          return Compute(ComputeEffect(std::move(it)));
        } else if constexpr (std::is_same_v<T, SendActivation>) {
          SendItem(Side::kBelow, it.item.is_evaluation ? FrameKind::kEvaluation : FrameKind::kActivation, it.item);
        } else if constexpr (std::is_same_v<T, SendGradient>) {
          SendItem(Side::kAbove, it.item.is_evaluation ? FrameKind::kDone : FrameKind::kGradient, it.item);
        } else if constexpr (std::is_same_v<T, SendNorms>) {
          const absl::string_view bytes(reinterpret_cast<const char*>(it.norms.data()),
                                        it.norms.size() * sizeof(double));
          SendControl(Side::kAbove, FrameKind::kNorms, it.step, bytes);
        } else if constexpr (std::is_same_v<T, SendScalar>) {
          StepScalar scalar;
          scalar.set_step(it.step);
          scalar.set_clip(it.clip);
          scalar.set_square_sum(it.square_sum);
          scalar.set_skip(it.skip);
          SendControl(Side::kBelow, FrameKind::kScalar, it.step, scalar.SerializeAsString());
        } else if constexpr (std::is_same_v<T, SendStop>) {
          SendControl(Side::kBelow, FrameKind::kStop, it.end_step * setup_.core.rule.microbatches_per_step(), "");
        } else if constexpr (std::is_same_v<T, ReleaseInput>) {
          inputs_.erase(it.item.sequence);
        } else if constexpr (std::is_same_v<T, ReportScalar>) {
          NoteScalar(it);
        } else if constexpr (std::is_same_v<T, ReportStopPoint>) {
          WorkerMessage message;
          message.mutable_stop_point()->set_epoch(setup_.epoch);
          message.mutable_stop_point()->set_step(it.end_step);
          events_.on_report(std::move(message));
        } else {
          static_assert(std::is_same_v<T, StageFinished>);
          finished_steps_ = it.steps_done;
        }
        return absl::OkStatus();
      },
      effect);
}

absl::Status StageRunner::Compute(ComputeEffect effect) {
  Payload input;
  if (const auto* forward = std::get_if<RunForward>(&effect)) {
    if (setup_.above) input = inputs_[forward->item.sequence];
  } else if (const auto* evaluation = std::get_if<RunEvaluation>(&effect)) {
    if (setup_.above) input = inputs_[evaluation->item.sequence];
  } else if (const auto* both = std::get_if<RunForwardBackward>(&effect)) {
    if (setup_.above) input = inputs_[both->item.sequence];
    RETURN_IF_ERROR(CheckLag(both->item, both->weights_buffer));
  } else if (const auto* backward = std::get_if<RunBackward>(&effect)) {
    const auto found = gradients_.find(backward->item.sequence);
    if (found != gradients_.end()) {
      input = std::move(found->second);
      gradients_.erase(found);
    }
    RETURN_IF_ERROR(CheckLag(backward->item, backward->weights_buffer));
  } else if (const auto* finish = std::get_if<RunFinishCapture>(&effect)) {
    if (checkpoints_writing_ >= kMaxCheckpointsWriting) {
      held_capture_ = *finish;
      return absl::OkStatus();
    }
  }
  PostCompute(std::move(effect), std::move(input));
  return absl::OkStatus();
}

void StageRunner::PostCompute(ComputeEffect effect, Payload input) {
  RoundValues round;
  const auto* update = std::get_if<RunUpdate>(&effect);
  if ((update != nullptr && update->round > 0) || std::holds_alternative<RunApply>(effect)) {
    round = std::exchange(round_values_, RoundValues{});
    pinned_.reset();
  }
  loops_.compute->Post([self = shared_from_this(), executor = executor_, effect = std::move(effect),
                        input = std::move(input), round = std::move(round), worker = loops_.worker]() mutable {
    const MonoTime begin = worker->Now();
    ComputeOutcome outcome = RunOnExecutor(*executor, effect, input, round);
    round = RoundValues{};
    outcome.busy_seconds = std::chrono::duration<double>(worker->Now() - begin).count();
    input = Payload{};
    executor.reset();
    worker->Post([self = std::move(self), effect = std::move(effect), outcome = std::move(outcome)]() mutable {
      self->OnComputed(effect, std::move(outcome));
    });
  });
}

// The version in the buffer must be the one that the index rule names; the lag goes into the histogram, the data into
// the tally.
absl::Status StageRunner::CheckLag(const Item& item, uint32_t weights_buffer) {
  const uint64_t version = setup_.core.rule.VersionOf(item.n);
  if (!core_.buffers().HasVersion(version) || core_.buffers().BufferOfVersion(version) != weights_buffer) {
    return absl::InternalError(absl::StrCat(
        "weights of another version than the rule's would be used: microbatch=", item.n, " version=", version));
  }
  meter_.AddLag(setup_.core.rule.StepOf(item.n) - version);
  trained_.Add(setup_.cluster_steps.GlobalMicrobatch(item.n, setup_.core.rule.microbatches_per_step()));
  return absl::OkStatus();
}

void StageRunner::OnComputed(const ComputeEffect& effect, ComputeOutcome outcome) {
  if (closed_) return;
  meter_.AddBusy(outcome.busy_seconds);
  const bool completes =
      std::holds_alternative<RunBackward>(effect) || std::holds_alternative<RunForwardBackward>(effect);
  const auto* forward = std::get_if<RunForward>(&effect);
  if (completes || std::holds_alternative<RunUpdate>(effect) || (forward != nullptr && !forward->item.is_evaluation)) {
    meter_.AddTraining(outcome.busy_seconds, completes);
  }
  if (!outcome.status.ok()) return Fail(outcome.status, "");
  output_ = std::move(outcome.output);
  ReportResult(effect, outcome);
  if (const auto* finish = std::get_if<RunFinishCapture>(&effect)) {
    OnCaptured(finish->checkpoint_step, std::move(outcome.units));
  } else if (const auto* pin = std::get_if<RunPin>(&effect)) {
    if (pin->round > 0) pinned_ = outcome.pinned;
    rounds_->OnPinned(pin->round, pin->version, std::move(outcome.pinned), unit_parameters_);
  }
  Apply(core_.OnComputeDone(std::move(outcome.norms)), "");
}

void StageRunner::ReportResult(const ComputeEffect& effect, const ComputeOutcome& outcome) {
  const uint64_t m = setup_.core.rule.microbatches_per_step();
  if (const auto* both = std::get_if<RunForwardBackward>(&effect)) {
    step_loss_ += outcome.loss;
    if (both->item.n % m != m - 1) return;
    WorkerMessage message;
    StepReport& report = *message.mutable_step_report();
    report.set_epoch(setup_.epoch);
    report.set_step(both->item.n / m);
    report.set_has_loss(true);
    report.set_loss(step_loss_ / static_cast<double>(m));
    step_loss_ = 0;
    events_.on_report(std::move(message));
  } else if (const auto* evaluation = std::get_if<RunEvaluation>(&effect)) {
    evaluation_loss_ += outcome.loss;
    if (evaluation->item.evaluation + 1 != setup_.evaluation_microbatches) return;
    WorkerMessage message;
    EvaluationReport& report = *message.mutable_evaluation_report();
    report.set_epoch(setup_.epoch);
    report.set_after_step(evaluation->item.n / m);
    report.set_tokens(setup_.evaluation_microbatches * setup_.microbatch_tokens);
    report.set_loss(evaluation_loss_ / static_cast<double>(report.tokens()));
    evaluation_loss_ = 0;
    events_.on_report(std::move(message));
  } else if (std::holds_alternative<RunUpdate>(effect)) {
    FlushScalar(outcome.learning_rate);
  }
}

// Stage 0 speaks for all stages: its S is the global one (with stage-wise clipping: its own).
void StageRunner::NoteScalar(const ReportScalar& scalar) {
  if (setup_.core.stage != 0) return;
  StepReport report;
  report.set_epoch(setup_.epoch);
  report.set_step(scalar.step);
  report.set_has_scalar(true);
  report.set_clip(scalar.clip);
  report.set_square_sum(scalar.square_sum);
  report.set_skip(scalar.skip);
  scalar_report_ = std::move(report);
}

void StageRunner::FlushScalar(double learning_rate) {
  if (!scalar_report_) return;
  WorkerMessage message;
  scalar_report_->set_learning_rate(learning_rate);
  *message.mutable_step_report() = *std::move(scalar_report_);
  scalar_report_.reset();
  events_.on_report(std::move(message));
}

// With rounds a checkpoint is complete when those that have begun are committed: then it is the same, however fast they
// were, and a life that starts from it has no exchange to repeat. Behind the last step nothing needs that state.
void StageRunner::OnCaptured(uint64_t step, std::vector<CheckpointUnit> units) {
  ++checkpoints_writing_;
  if (!rounds_ || step == setup_.core.total_steps) return WriteCheckpoint(step, {std::move(units), nullptr}, {});
  without_common_[step] = {std::move(units), pinned_};
  rounds_->Capture(step, core_.rounds_begun());
}

void StageRunner::OnCommonCaptured(uint64_t step, CommonState state) {
  const auto captured = without_common_.find(step);
  if (closed_ || captured == without_common_.end()) return;
  CapturedUnits units = std::move(captured->second);
  without_common_.erase(captured);
  WriteCheckpoint(step, std::move(units), std::move(state));
}

// The state of rounds is as large as the weights: it is packed where files are written, not on the worker loop.
void StageRunner::WriteCheckpoint(uint64_t step, CapturedUnits captured, std::optional<CommonState> common) {
  loops_.bulk->Post([self = shared_from_this(), captured = std::move(captured), common = std::move(common),
                     unit_parameters = unit_parameters_, step, worker = loops_.worker]() mutable {
    const StageSetup& setup = self->setup_;
    if (common) {
      if (captured.pinned) common->pinned = *captured.pinned;
      AddCommonState(*common, unit_parameters, &captured.units);
      common.reset();
    }
    std::vector<CheckpointPart> parts =
        WriteCheckpointUnits(setup.run_dir, setup.checkpoint_folder, setup.epoch, step, captured.units);
    captured = {};
    worker->Post(
        [self = std::move(self), parts = std::move(parts)]() mutable { self->OnCheckpointWritten(std::move(parts)); });
  });
}

void StageRunner::OnCheckpointWritten(std::vector<CheckpointPart> parts) {
  if (closed_) return;
  --checkpoints_writing_;
  for (CheckpointPart& part : parts) {
    WorkerMessage message;
    *message.mutable_checkpoint_part() = std::move(part);
    events_.on_report(std::move(message));
  }
  if (held_capture_) {
    PostCompute(*held_capture_, Payload{});
    held_capture_.reset();
  }
  MaybeFinished();
}

void StageRunner::Measure() {
  const MonoTime now = loops_.worker->Now();
  if (core_.computing()) {
    meter_.Computing(now);
  } else {
    meter_.Idle(now, core_.wait_reason());
  }
}

// The end of this life: everything computed, on disk, and handed to the transport. The links stay up until the
// coordinator releases the stage, so that a neighbour still gets what is under way.
void StageRunner::MaybeFinished() {
  if (closed_ || reported_finished_ || !finished_steps_ || checkpoints_writing_ > 0) return;
  for (const Stream* stream : {&above_, &below_}) {
    if (stream->sender && stream->sender->queued_frames() > 0) return;
  }
  reported_finished_ = true;
  WorkerMessage message;
  auto& report = *message.mutable_stage_finished();
  report.set_epoch(setup_.epoch);
  report.set_steps(*finished_steps_);
  *report.mutable_counters() = Counters();
  report.set_microbatches(trained_.microbatches());
  report.set_data_digest(trained_.digest());
  events_.on_report(std::move(message));
}

WorkerCounters StageRunner::Counters() const {
  WorkerCounters counters;
  if (started_) meter_.Fill(loops_.worker->Now(), &counters);
  if (below_.sender) {
    counters.set_forward_wire_bytes(below_.sender->counters().wire_bytes);
    counters.set_forward_payload_bytes(below_.sender->counters().payload_bytes);
  }
  if (above_.sender) {
    counters.set_backward_wire_bytes(above_.sender->counters().wire_bytes);
    counters.set_backward_payload_bytes(above_.sender->counters().payload_bytes);
  }
  if (rounds_) counters.set_averaging_bytes(rounds_->bytes_sent());
  return counters;
}

}  // namespace stagecoach
