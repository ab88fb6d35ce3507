#include "worker/main/stage_compute.h"

#include <utility>

#include "common/averaging/apply_rule.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// The version in `buffer` is used by nobody yet.
absl::Status EnterRound(StageExecutor& executor, bool replace, const RoundValues& round, uint32_t buffer) {
  if (round.theta == nullptr || round.pinned == nullptr) return absl::InternalError("a round without its result");
  if (replace) return executor.WriteWeights(buffer, *round.theta);
  ASSIGN_OR_RETURN(std::vector<float> weights, executor.ReadWeights(buffer));
  ApplyRound(MergeRule::kAdditive, *round.theta, *round.pinned, absl::MakeSpan(weights));
  return executor.WriteWeights(buffer, weights);
}

absl::Status CaptureFor(StageExecutor& executor, const std::vector<uint64_t>& checkpoint_steps, uint64_t version,
                        uint32_t buffer) {
  for (const uint64_t step : checkpoint_steps) RETURN_IF_ERROR(executor.CaptureWeights(step, version, buffer));
  return absl::OkStatus();
}

absl::Status Update(StageExecutor& executor, const RunUpdate& update, const RoundValues& round,
                    ComputeOutcome* outcome) {
  outcome->learning_rate = executor.LearningRate(update.step);
  RETURN_IF_ERROR(executor.Update(
      UpdateRequest{update.step, update.weights_buffer, update.gradient_buffer, update.clip, update.skip}));
  // The new version lives where the gradient sum was. It is copied now, while it is certainly alive.
  if (update.round > 0) RETURN_IF_ERROR(EnterRound(executor, /*replace=*/false, round, update.gradient_buffer));
  return CaptureFor(executor, update.capture_for, update.step + 1, update.gradient_buffer);
}

absl::Status Apply(StageExecutor& executor, const RunApply& apply, const RoundValues& round) {
  RETURN_IF_ERROR(EnterRound(executor, apply.replace, round, apply.weights_buffer));
  return CaptureFor(executor, apply.capture_for, apply.version, apply.weights_buffer);
}

absl::Status Pin(StageExecutor& executor, const RunPin& pin, ComputeOutcome* outcome) {
  ASSIGN_OR_RETURN(std::vector<float> weights, executor.ReadWeights(pin.weights_buffer));
  outcome->pinned = std::make_shared<const std::vector<float>>(std::move(weights));
  return absl::OkStatus();
}

absl::Status Capture(StageExecutor& executor, const RunCapture& capture) {
  for (const auto& [version, buffer] : capture.version_and_buffer) {
    RETURN_IF_ERROR(executor.CaptureWeights(capture.checkpoint_step, version, buffer));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Take(absl::StatusOr<T> result, T* destination) {
  if (!result.ok()) return result.status();
  *destination = *std::move(result);
  return absl::OkStatus();
}

}  // namespace

ComputeOutcome RunOnExecutor(StageExecutor& executor, const ComputeEffect& effect, const Payload& input,
                             const RoundValues& round) {
  ComputeOutcome outcome;
  outcome.status = std::visit(
      Overloaded{[&](const RunForward& run) {
                   return Take(executor.Forward(run.item, run.weights_buffer, input), &outcome.output);
                 },
                 [&](const RunBackward& run) {
                   return Take(executor.Backward(run.item, run.weights_buffer, run.gradient_buffer, run.first, input),
                               &outcome.output);
                 },
                 [&](const RunForwardBackward& run) -> absl::Status {
                   auto result =
                       executor.ForwardBackward(run.item, run.weights_buffer, run.gradient_buffer, run.first, input);
                   if (!result.ok()) return result.status();
                   outcome.loss = result->loss;
                   outcome.output = std::move(result->gradient);
                   return absl::OkStatus();
                 },
                 [&](const RunEvaluation& run) {
                   return Take(executor.Evaluate(run.item, run.weights_buffer, input), &outcome.loss);
                 },
                 [&](const RunNorms& run) {
                   return Take(executor.GradientNorms(run.step, run.gradient_buffer), &outcome.norms);
                 },
                 [&](const RunUpdate& run) { return Update(executor, run, round, &outcome); },
                 [&](const RunPin& run) { return Pin(executor, run, &outcome); },
                 [&](const RunApply& run) { return Apply(executor, run, round); },
                 [&](const RunCapture& run) { return Capture(executor, run); },
                 [&](const RunFinishCapture& run) {
                   return Take(executor.FinishCapture(run.checkpoint_step), &outcome.units);
                 }},
      effect);
  return outcome;
}

}  // namespace stagecoach
