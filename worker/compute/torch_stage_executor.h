// Executes one stage with libtorch, on the CPU or a CUDA device.
//
// Buffer b is one flat fp32 tensor. As weights it is seen through leaf views that require grad; as gradient sum through
// plain views that autograd adds to in place, one addition per parameter and microbatch, so that the sum starts at +0
// and grows in index order, exactly as the single-process reference adds.
//
// With recompute, a microbatch in flight keeps its encoded input alone (stage 0: nothing); without, its graph. Token
// ids are read from the data set by index and kept while the microbatch is in flight.
//
// Threading and errors: as StageExecutor. Ownership: payloads share their buffers with the caller.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "model/data/token_dataset.h"
#include "model/stage_model.h"
#include "model/stage_optimizer.h"
#include "worker/compute/executor_factory.h"
#include "worker/compute/stage_executor.h"

namespace stagecoach {

class TorchStageExecutor : public StageExecutor {
 public:
  static absl::StatusOr<std::unique_ptr<TorchStageExecutor>> Create(const ExecutorOptions& options);

  uint32_t num_buffers() const override { return static_cast<uint32_t>(buffers_.size()); }
  uint64_t parameter_count() const override;
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
  double LearningRate(uint64_t step) const override;

  // For tests: the weights in a buffer, flat on the host.
  at::Tensor BufferOnHost(uint32_t buffer) const;

 private:
  struct Buffer {
    at::Tensor flat;
    std::vector<at::Tensor> weights;    // leaves that require grad
    std::vector<at::Tensor> gradients;  // the same memory, plain
  };
  struct InFlight {
    Payload input;    // recompute
    at::Tensor leaf;  // no recompute: the decoded input (stage > 0) and the graph's end
    at::Tensor output;
    StageModel::Batch batch;
  };

  TorchStageExecutor(const ExecutorOptions& options, TokenDataset data, at::Device device);
  absl::Status Load();
  absl::Status LoadWeights();  // torch_executor_checkpoint.cc
  absl::Status LoadParameter(size_t parameter, const SafetensorsReader& file, std::vector<at::Tensor>* host_weights);
  absl::Status ReadCounts(const SafetensorsReader& file, uint32_t unit, uint64_t* applied, double* nadam_product) const;

  bool is_first() const { return options_.stage == 0; }
  bool is_last() const { return options_.stage + 1 == options_.config.num_stages(); }
  uint64_t StepOf(const Item& item) const { return item.n / options_.config.microbatches; }
  StageModel::Batch ReadBatch(const Item& item, bool with_labels) const;
  // Decoded input as rows x columns on the device; undefined at stage 0.
  absl::StatusOr<at::Tensor> Decoded(const Payload& payload, uint32_t cut_index, const char* what) const;
  // `poisoned`: the microbatch is not finite somewhere: the frame is zero and carries the flag, so that it marks every
  // stage that it reaches.
  absl::StatusOr<Payload> Encoded(const at::Tensor& values, uint32_t cut_index, const StochasticRounding* rounding,
                                  bool poisoned) const;
  // Points the leaves of the weights at the gradient sum, zeroed if `first`.
  void AimGradients(uint32_t weights_buffer, uint32_t gradient_buffer, bool first);
  absl::StatusOr<Payload> InputGradient(const Item& item, const at::Tensor& leaf, bool poisoned);
  void NoteNonFinite(const Item& item) { nonfinite_steps_.insert(StepOf(item)); }

  const ExecutorOptions options_;
  const VersionRule rule_;
  const at::Device device_;
  const TokenDataset data_;
  const StageModel model_;
  StageOptimizer optimizer_;
  bool recomputes_ = true;
  std::vector<Buffer> buffers_;
  std::map<uint64_t, InFlight> in_flight_;  // by item sequence; at most the window
  std::set<uint64_t> nonfinite_steps_;      // erased by GradientNorms of that step: at most the steps in flight
  std::map<uint64_t, std::map<uint64_t, at::Tensor>> captured_;  // checkpoint step -> version -> flat host copy
};

}  // namespace stagecoach
