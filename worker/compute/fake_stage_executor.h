// A stage without a model: integers instead of tensors, a fixed time instead of work. Any wrong order, version, buffer
// or payload changes the final state, which tests/support/fake_reference.h predicts.
//
// Payloads have the size that the boundary's codec prescribes; the first 64 bytes carry the number, the rest is zero.
// The numbers do not depend on where the model is cut.
//
// Threading: as StageExecutor. Errors: as StageExecutor; a checkpoint that could not be read is reported by every
// method.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/compute/executor_factory.h"
#include "worker/compute/stage_executor.h"

namespace stagecoach {

class FakeStageExecutor : public StageExecutor {
 public:
  FakeStageExecutor(ExecutorOptions options, const FakeCosts& costs);

  uint32_t num_buffers() const override { return static_cast<uint32_t>(buffers_.size()); }
  uint64_t parameter_count() const override { return 2 * uint64_t{num_units_}; }  // a number is two fp32 of bits
  absl::StatusOr<Payload> Forward(const Item& item, uint32_t weights_buffer, const Payload& input) override;
  absl::StatusOr<Payload> Backward(const Item& item, uint32_t weights_buffer, uint32_t gradient_buffer, bool first,
                                   const Payload& gradient) override;
  absl::StatusOr<LastStageResult> ForwardBackward(const Item& item, uint32_t weights_buffer, uint32_t gradient_buffer,
                                                  bool first, const Payload& input) override;
  absl::StatusOr<double> Evaluate(const Item& item, uint32_t weights_buffer, const Payload& input) override;
  absl::StatusOr<std::vector<double>> GradientNorms(uint64_t step, uint32_t gradient_buffer) override;
  absl::Status Update(const UpdateRequest& request) override;
  absl::Status CaptureWeights(uint64_t checkpoint_step, uint64_t version, uint32_t buffer) override;
  absl::StatusOr<std::vector<CheckpointUnit>> FinishCapture(uint64_t checkpoint_step) override;
  std::vector<uint64_t> unit_parameters() const override;
  absl::StatusOr<std::vector<float>> ReadWeights(uint32_t buffer) override;
  absl::Status WriteWeights(uint32_t buffer, absl::Span<const float> weights) override;
  double LearningRate(uint64_t step) const override { return 1e-3 / static_cast<double>(step + 1); }

  // For tests.
  const std::vector<uint64_t>& buffer(uint32_t index) const { return buffers_[index]; }
  const std::vector<uint64_t>& moments() const { return moments_; }

 private:
  using Numbers = std::vector<uint64_t>;  // one a unit

  absl::Status Load();
  absl::Status LoadUnit(uint32_t index, uint64_t oldest_version);
  // The activation that enters the stage.
  absl::StatusOr<uint64_t> Enter(const Item& item, const Payload& input);
  absl::StatusOr<uint64_t> ReadPayload(const Payload& payload, uint32_t cut_index);
  absl::StatusOr<Payload> MakePayload(uint64_t number, uint32_t cut_index, bool nonfinite);
  // Activations in front of every unit and behind the last one.
  Numbers RunUnits(uint64_t activation, const Numbers& weights) const;
  uint64_t RunUnitsBackward(const Numbers& activations, const Numbers& weights, uint64_t gradient, bool first,
                            Numbers* sums) const;

  const ExecutorOptions options_;
  const FakeCosts costs_;
  const uint32_t first_unit_, num_units_;
  absl::Status status_;
  std::vector<Numbers> buffers_;
  Numbers moments_;
  uint64_t applied_ = 0;
  struct Stashed {
    Numbers activations;
    bool nonfinite = false;
  };
  std::map<uint64_t, Stashed> stash_;  // by item sequence; at most the window
  std::set<uint64_t> nonfinite_steps_;
  std::map<uint64_t, std::map<uint64_t, Numbers>> captured_;  // checkpoint step -> version -> numbers
};

}  // namespace stagecoach
