// Executes one stage: forward, backward, update on one device. The interface knows no torch; TorchStageExecutor
// computes, FakeStageExecutor folds bytes into integers so that schedules and links can be tested to the bit without
// torch.
//
// Weights live in numbered buffers 0..num_buffers-1, each able to hold one version of the weights OR one gradient
// accumulator. Which buffer plays which role is decided by worker/domain (buffer_rotation.h); the executor obeys.
//
// Threading: every method is called on the compute thread, one at a time. May block on the device.
// Errors: INVALID_ARGUMENT for a payload that does not decode; INTERNAL for what the device or torch reports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/schedule_rules.h"
#include "worker/tensor/host_buffer.h"

namespace stagecoach {

// A tensor as it crosses a boundary, encoded by the boundary's codec.
struct Payload {
  BufferRef bytes;         // null at the ends of the pipeline
  bool nonfinite = false;  // the frame's flag: bytes are zero, the step must be skipped
};

struct LastStageResult {
  double loss = 0;   // mean over the microbatch's tokens, nats
  Payload gradient;  // for the stage above; no bytes if this stage is also the first
};

// One layer's part of a checkpoint, host memory, ready for safetensors.
struct CheckpointTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string bytes;  // fp32 little endian
};
struct CheckpointUnit {
  uint32_t unit = 0;
  std::vector<CheckpointTensor> tensors;  // w.<lag>.<parameter>, m.<parameter>, v.<parameter>, u.<parameter>
  // Of the file: step, applied_updates, nadam_product (hexadecimal floating point).
  std::map<std::string, std::string> metadata;
  // SHA-256 of the newest version's parameters (lag 0), canonical order, fp32 little endian.
  std::string weights_sha256;
};

struct UpdateRequest {
  uint64_t step = 0;             // t: creates W^(t+1)
  uint32_t weights_buffer = 0;   // holds W^(t)
  uint32_t gradient_buffer = 0;  // holds the unscaled gradient sum of step t; receives W^(t+1)
  double clip = 1;               // c_t; the optimizer's gradient is sum * (c_t / M)
  bool skip = false;             // W^(t+1) := W^(t), optimizer state untouched
};

class StageExecutor {
 public:
  virtual ~StageExecutor() = default;

  virtual uint32_t num_buffers() const = 0;
  virtual uint64_t parameter_count() const = 0;

  // Forward of item; `input` from the stage above (no bytes at stage 0). Keeps what backward needs (the encoded input,
  // or the activations if nothing is recomputed). Not called for training microbatches at the last stage.
  virtual absl::StatusOr<Payload> Forward(const Item& item, uint32_t weights_buffer, const Payload& input) = 0;

  // Backward of microbatch n, after its Forward, in index order. Adds to gradient_buffer; `first` zeroes it before.
  // Returns the gradient for the stage above (no bytes at stage 0).
  virtual absl::StatusOr<Payload> Backward(const Item& item, uint32_t weights_buffer, uint32_t gradient_buffer,
                                           bool first, const Payload& gradient) = 0;

  // Last stage: forward, loss and backward of microbatch n as one operation.
  virtual absl::StatusOr<LastStageResult> ForwardBackward(const Item& item, uint32_t weights_buffer,
                                                          uint32_t gradient_buffer, bool first,
                                                          const Payload& input) = 0;

  // Last stage: sum of the losses over the tokens of an evaluation microbatch (nats, double).
  virtual absl::StatusOr<double> Evaluate(const Item& item, uint32_t weights_buffer, const Payload& input) = 0;

  // S_q = sum of ((1/M) g)^2 for each parameter tensor of the stage in canonical order, double, fixed order. A NaN
  // marks a non-finite loss or frame seen in this step.
  virtual absl::StatusOr<std::vector<double>> GradientNorms(uint64_t step, uint32_t gradient_buffer) = 0;

  virtual absl::Status Update(const UpdateRequest& request) = 0;

  // Checkpointing, called right after the initial load or an Update. CaptureWeights keeps a host copy of the weights in
  // `buffer` as version `version` for the checkpoint of `checkpoint_step`. FinishCapture adds the optimizer state (only
  // valid when version checkpoint_step has just been created) and hands the units over.
  virtual absl::Status CaptureWeights(uint64_t checkpoint_step, uint64_t version, uint32_t buffer) = 0;
  virtual absl::StatusOr<std::vector<CheckpointUnit>> FinishCapture(uint64_t checkpoint_step) = 0;

  // For rounds between clusters: what is averaged, unit after unit in canonical order, on the host.
  virtual std::vector<uint64_t> unit_parameters() const = 0;  // of each unit of the stage
  virtual absl::StatusOr<std::vector<float>> ReadWeights(uint32_t buffer) = 0;
  virtual absl::Status WriteWeights(uint32_t buffer, absl::Span<const float> weights) = 0;

  // Learning rate of step t (for reports).
  virtual double LearningRate(uint64_t step) const = 0;
};

}  // namespace stagecoach
