#include "worker/compute/torch_stage_executor.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/compute/activation_memory.h"
#include "worker/compute/torch_device.h"
#include "worker/compute/torch_errors.h"

namespace stagecoach {

absl::StatusOr<std::unique_ptr<StageExecutor>> CreateTorchExecutor(const ExecutorOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<TorchStageExecutor> executor, TorchStageExecutor::Create(options));
  return executor;
}

absl::StatusOr<std::unique_ptr<TorchStageExecutor>> TorchStageExecutor::Create(const ExecutorOptions& options) {
  if (options.stage >= options.config.num_stages()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", options.stage, " does not exist in a run of ", options.config.num_stages(), " stages"));
  }
  ConfigureTorch(options.config.threads);
  ASSIGN_OR_RETURN(const at::Device device, OpenTorchDevice(options.device));
  ASSIGN_OR_RETURN(TokenDataset data, TokenDataset::Open(options.config.data_path, /*verify=*/false));
  if (data.vocabulary() > options.config.model.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(options.config.data_path, " holds token ids below ",
                                                   data.vocabulary(), " but the model's vocabulary is ",
                                                   options.config.model.vocabulary));
  }
  using Result = absl::StatusOr<std::unique_ptr<TorchStageExecutor>>;
  return CatchTorch(absl::StrCat("loading stage ", options.stage), [&]() -> Result {
    std::unique_ptr<TorchStageExecutor> executor(new TorchStageExecutor(options, std::move(data), device));
    RETURN_IF_ERROR(executor->Load());
    return executor;
  });
}

TorchStageExecutor::TorchStageExecutor(const ExecutorOptions& options, TokenDataset data, at::Device device)
    : options_(options),
      rule_(options.config.RuleOfStage(options.stage)),
      device_(device),
      data_(std::move(data)),
      model_(options.config.model, options.config.seed, options.config.first_unit(options.stage),
             options.config.end_unit(options.stage), device),
      optimizer_(options.config.optimizer, options.config.model, model_.parameters(), device) {
  const uint64_t units = options.config.end_unit(options.stage) - options.config.first_unit(options.stage);
  recomputes_ = ChooseRecompute(options.config, units, options.window, FreeMemoryBytes(device_));
  for (uint32_t b = 0; b < rule_.MaxLag() + 2; ++b) {
    Buffer buffer;
    buffer.flat = at::zeros({model_.flat_size()}, at::TensorOptions().dtype(at::kFloat).device(device_));
    buffer.weights = model_.Views(buffer.flat, /*requires_grad=*/true);
    buffer.gradients = model_.Views(buffer.flat, /*requires_grad=*/false);
    buffers_.push_back(std::move(buffer));
  }
}

absl::Status TorchStageExecutor::Load() {
  if (!options_.checkpoint_dir.empty()) return LoadWeights();
  if (options_.first_step != 0) {
    return absl::InvalidArgumentError(absl::StrCat("starting after step ", options_.first_step, " needs a checkpoint"));
  }
  model_.Initialize(buffers_[0].flat);
  return absl::OkStatus();
}

uint64_t TorchStageExecutor::parameter_count() const {
  uint64_t count = 0;
  for (const ParameterInfo& info : model_.parameters()) count += static_cast<uint64_t>(info.numel);
  return count;
}

double TorchStageExecutor::LearningRate(uint64_t step) const {
  return RateAt(options_.config.optimizer, options_.config.optimizer.learning_rate, step);
}

at::Tensor TorchStageExecutor::BufferOnHost(uint32_t buffer) const {
  return buffers_[buffer].flat.detach().cpu().clone();
}

StageModel::Batch TorchStageExecutor::ReadBatch(const Item& item, bool with_labels) const {
  const RunConfig& config = options_.config;
  const int64_t rows = config.sequences, tokens = config.tokens;
  at::Tensor ids = at::empty({rows, tokens}, at::kLong), labels = at::empty({rows, tokens}, at::kLong);
  const absl::Span<int64_t> id_span(ids.mutable_data_ptr<int64_t>(), static_cast<size_t>(ids.numel()));
  const absl::Span<int64_t> label_span(labels.mutable_data_ptr<int64_t>(), static_cast<size_t>(labels.numel()));
  if (item.is_evaluation) {
    ReadEvaluationMicrobatch(data_, config.training_windows, config.evaluation_windows, item.evaluation,
                             config.sequences, config.tokens, id_span, label_span);
  } else {
    ReadMicrobatch(data_, config.seed, config.training_windows, config.GlobalMicrobatch(item.n), config.sequences,
                   config.tokens, id_span, label_span);
  }
  StageModel::Batch batch;
  batch.n = config.GlobalMicrobatch(item.n);
  batch.training = !item.is_evaluation;
  batch.ids = ids.to(device_);
  if (with_labels) batch.labels = labels.to(device_);
  return batch;
}

absl::StatusOr<at::Tensor> TorchStageExecutor::Decoded(const Payload& payload, uint32_t cut_index,
                                                       const char* what) const {
  const RunConfig& config = options_.config;
  const uint32_t rows = config.sequences * config.tokens, columns = config.model.boundary_columns();
  const WireFormat format = config.codecs[cut_index];
  const size_t expected = EncodedBytes(format, rows, columns);
  if (payload.bytes == nullptr || payload.bytes->size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(what, " at cut ", config.cuts[cut_index], " has ",
                                                   payload.bytes ? payload.bytes->size() : 0, " bytes, expected ",
                                                   expected));
  }
  at::Tensor values = at::empty({rows, columns}, at::kFloat);
  const absl::Span<float> span(values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel()));
  if (payload.nonfinite) {
    values.zero_();
  } else if (!Decode(format, rows, columns, payload.bytes->bytes(), span)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " at cut ", config.cuts[cut_index],
                                                   " holds numbers that are not finite but is not flagged as such"));
  }
  return values.to(device_);
}

absl::StatusOr<Payload> TorchStageExecutor::Encoded(const at::Tensor& values, uint32_t cut_index,
                                                    const StochasticRounding* rounding, bool poisoned) const {
  const RunConfig& config = options_.config;
  const uint32_t rows = config.sequences * config.tokens, columns = config.model.boundary_columns();
  const WireFormat format = config.codecs[cut_index];
  ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> buffer, options_.pool->Allocate(EncodedBytes(format, rows, columns)));
  const at::Tensor host = values.detach().cpu().contiguous();
  const absl::Span<const float> span(host.const_data_ptr<float>(), static_cast<size_t>(host.numel()));
  bool finite = Encode(format, rows, columns, span, rounding, buffer->bytes());
  if (poisoned) {
    std::memset(buffer->bytes().data(), 0, buffer->size());
    finite = false;
  }
  return Payload{std::move(buffer), !finite};
}

absl::StatusOr<Payload> TorchStageExecutor::Forward(const Item& item, uint32_t weights_buffer, const Payload& input) {
  return CatchTorch(absl::StrCat("forward of microbatch ", item.n), [&]() -> absl::StatusOr<Payload> {
    const bool keeps_graph = !item.is_evaluation && !recomputes_;
    const at::AutoGradMode grad_mode(keeps_graph);
    InFlight flight;
    flight.batch = ReadBatch(item, /*with_labels=*/false);
    if (!is_first()) {
      ASSIGN_OR_RETURN(flight.leaf, Decoded(input, options_.stage - 1, "activation"));
      if (keeps_graph) flight.leaf.set_requires_grad(true);
    }
    flight.output = model_.Forward(buffers_[weights_buffer].weights, flight.leaf, flight.batch, nullptr);
    ASSIGN_OR_RETURN(Payload output, Encoded(flight.output, options_.stage, nullptr, input.nonfinite));
    if (item.is_evaluation) return output;
    if (in_flight_.size() >= options_.window) {
      return absl::InternalError(absl::StrCat("microbatch ", item.n, " exceeds the window of ", options_.window));
    }
    if (output.nonfinite) NoteNonFinite(item);
    if (recomputes_) {
      flight.output = at::Tensor();
      flight.leaf = at::Tensor();
      flight.input = input;
    }
    in_flight_.emplace(item.sequence, std::move(flight));
    return output;
  });
}

void TorchStageExecutor::AimGradients(uint32_t weights_buffer, uint32_t gradient_buffer, bool first) {
  if (first) buffers_[gradient_buffer].flat.zero_();
  const std::vector<at::Tensor>& leaves = buffers_[weights_buffer].weights;
  for (size_t q = 0; q < leaves.size(); ++q) leaves[q].mutable_grad() = buffers_[gradient_buffer].gradients[q];
}

absl::StatusOr<Payload> TorchStageExecutor::InputGradient(const Item& item, const at::Tensor& leaf, bool poisoned) {
  if (poisoned) NoteNonFinite(item);
  if (is_first()) return Payload{};
  const uint32_t cut_index = options_.stage - 1;
  const RunConfig& config = options_.config;
  const StochasticRounding rounding{config.seed, config.GlobalMicrobatch(item.n), config.cuts[cut_index]};
  ASSIGN_OR_RETURN(Payload gradient, Encoded(leaf.grad(), cut_index, &rounding, poisoned));
  if (gradient.nonfinite) NoteNonFinite(item);
  return gradient;
}

absl::StatusOr<Payload> TorchStageExecutor::Backward(const Item& item, uint32_t weights_buffer,
                                                     uint32_t gradient_buffer, bool first, const Payload& gradient) {
  return CatchTorch(absl::StrCat("backward of microbatch ", item.n), [&]() -> absl::StatusOr<Payload> {
    const auto found = in_flight_.find(item.sequence);
    if (found == in_flight_.end()) {
      return absl::InternalError(absl::StrCat("backward of microbatch ", item.n, " without its forward"));
    }
    InFlight flight = std::move(found->second);
    in_flight_.erase(found);
    ASSIGN_OR_RETURN(const at::Tensor upper, Decoded(gradient, options_.stage, "gradient"));
    if (recomputes_) {
      if (!is_first()) {
        ASSIGN_OR_RETURN(flight.leaf, Decoded(flight.input, options_.stage - 1, "activation"));
        flight.leaf.set_requires_grad(true);
      }
      flight.output = model_.Forward(buffers_[weights_buffer].weights, flight.leaf, flight.batch, nullptr);
    }
    AimGradients(weights_buffer, gradient_buffer, first);
    torch::autograd::backward({flight.output}, {upper});
    return InputGradient(item, flight.leaf, gradient.nonfinite);
  });
}

absl::StatusOr<LastStageResult> TorchStageExecutor::ForwardBackward(const Item& item, uint32_t weights_buffer,
                                                                    uint32_t gradient_buffer, bool first,
                                                                    const Payload& input) {
  return CatchTorch(absl::StrCat("microbatch ", item.n), [&]() -> absl::StatusOr<LastStageResult> {
    at::Tensor leaf;
    if (!is_first()) {
      ASSIGN_OR_RETURN(leaf, Decoded(input, options_.stage - 1, "activation"));
      leaf.set_requires_grad(true);
    }
    double loss_sum = 0;
    const at::Tensor loss = model_.Forward(buffers_[weights_buffer].weights, leaf, ReadBatch(item, true), &loss_sum);
    LastStageResult result;
    result.loss = loss_sum / (static_cast<double>(options_.config.sequences) * options_.config.tokens);
    AimGradients(weights_buffer, gradient_buffer, first);
    torch::autograd::backward({loss}, {});
    if (input.nonfinite) result.loss = std::numeric_limits<double>::quiet_NaN();
    ASSIGN_OR_RETURN(result.gradient, InputGradient(item, leaf, !std::isfinite(result.loss)));
    return result;
  });
}

absl::StatusOr<double> TorchStageExecutor::Evaluate(const Item& item, uint32_t weights_buffer, const Payload& input) {
  return CatchTorch("evaluation", [&]() -> absl::StatusOr<double> {
    const at::NoGradGuard no_grad;
    at::Tensor entering;
    if (!is_first()) {
      ASSIGN_OR_RETURN(entering, Decoded(input, options_.stage - 1, "activation"));
    }
    double loss_sum = 0;
    model_.Forward(buffers_[weights_buffer].weights, entering, ReadBatch(item, true), &loss_sum);
    return input.nonfinite ? std::numeric_limits<double>::quiet_NaN() : loss_sum;
  });
}

absl::StatusOr<std::vector<double>> TorchStageExecutor::GradientNorms(uint64_t step, uint32_t gradient_buffer) {
  return CatchTorch(absl::StrCat("gradient norms of step ", step), [&]() -> absl::StatusOr<std::vector<double>> {
    std::vector<double> norms =
        StageOptimizer::SquareNorms(buffers_[gradient_buffer].gradients, 1.0 / options_.config.microbatches);
    if (nonfinite_steps_.erase(step) > 0) norms.front() = std::numeric_limits<double>::quiet_NaN();
    return norms;
  });
}

absl::Status TorchStageExecutor::Update(const UpdateRequest& request) {
  return CatchTorch(absl::StrCat("update of step ", request.step), [&]() -> absl::Status {
    const at::NoGradGuard no_grad;
    optimizer_.Update(request.step, buffers_[request.weights_buffer].gradients,
                      buffers_[request.gradient_buffer].gradients, request.clip / options_.config.microbatches,
                      /*delayed=*/rule_.JOf(request.step) > 0, request.skip);
    return absl::OkStatus();
  });
}

}  // namespace stagecoach
