#include "worker/main/stage_compute.h"

#include <utility>

#include "common/status_macros.h"

namespace stagecoach {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

absl::Status Update(StageExecutor& executor, const RunUpdate& update, ComputeOutcome* outcome) {
  outcome->learning_rate = executor.LearningRate(update.step);
  RETURN_IF_ERROR(executor.Update(
      UpdateRequest{update.step, update.weights_buffer, update.gradient_buffer, update.clip, update.skip}));
  // The new version lives where the gradient sum was. It is copied now, while it is certainly alive.
  for (const uint64_t checkpoint_step : update.capture_for) {
    RETURN_IF_ERROR(executor.CaptureWeights(checkpoint_step, update.step + 1, update.gradient_buffer));
  }
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

ComputeOutcome RunOnExecutor(StageExecutor& executor, const ComputeEffect& effect, const Payload& input) {
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
                 [&](const RunUpdate& run) { return Update(executor, run, &outcome); },
                 [&](const RunCapture& run) { return Capture(executor, run); },
                 [&](const RunFinishCapture& run) {
                   return Take(executor.FinishCapture(run.checkpoint_step), &outcome.units);
                 }},
      effect);
  return outcome;
}

}  // namespace stagecoach
