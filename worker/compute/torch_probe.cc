// Measures what each kind of unit costs on a device, and fingerprints what a machine regenerates from counters.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "model/stage_model.h"
#include "model/stage_optimizer.h"
#include "worker/compute/activation_memory.h"
#include "worker/compute/executor_factory.h"
#include "worker/compute/torch_device.h"
#include "worker/compute/torch_errors.h"

namespace stagecoach {
namespace {

constexpr int kWarmups = 2, kPasses = 5;
constexpr double kBudgetSeconds = 0.5;  // of one operation; a slow one is measured once or twice
constexpr double kOutlier = 0.15;       // samples this far off the median are dropped
// A probe knows no plan: recompute "auto" is judged as if a stage held this many blocks and microbatches in flight.
constexpr uint64_t kNominalBlocks = 4, kNominalWindow = 16;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double MeanNearMedian(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const double median = samples[samples.size() / 2];
  double sum = 0, count = 0;
  for (const double sample : samples) {
    if (std::abs(sample - median) > kOutlier * median) continue;
    sum += sample;
    ++count;
  }
  return sum / count;
}

// `pass` returns the seconds of each of its phases.
std::vector<double> Measure(const std::function<std::vector<double>()>& pass) {
  const double begin = Now();
  for (int i = 0; i < kWarmups && (i == 0 || Now() - begin < kBudgetSeconds / 2); ++i) pass();
  std::vector<std::vector<double>> phases;
  const double measured_from = Now();
  for (int i = 0; i < kPasses && (i == 0 || Now() - measured_from < kBudgetSeconds); ++i) {
    const std::vector<double> seconds = pass();
    phases.resize(seconds.size());
    for (size_t phase = 0; phase < seconds.size(); ++phase) phases[phase].push_back(seconds[phase]);
  }
  std::vector<double> means;
  for (std::vector<double>& samples : phases) means.push_back(MeanNearMedian(std::move(samples)));
  return means;
}

struct Seconds {
  double forward = 0, backward = 0;
  Seconds operator-(const Seconds& other) const {
    return {std::max(0.0, forward - other.forward), std::max(0.0, backward - other.backward)};
  }
};

// Times ranges of units. A unit that no cut isolates (embedding, tail, head) is the difference of two ranges.
class Probe {
 public:
  Probe(const RunConfig& config, at::Device device) : config_(config), device_(device) {}

  MeasuredUnits Run() {
    const bool subspace = config_.model.compression == Compression::kSubspace;
    // Three blocks (four with two tails): the smallest model in which every kind of unit has a cut before it.
    const Seconds block = TimeRange(3, 1, 2, 3), embedding_and_block = TimeRange(3, 1, 0, 2);
    const Seconds tail_and_head = TimeRange(3, 1, 3, 5);
    const Seconds tail = subspace ? TimeRange(4, 2, 3, 6) - tail_and_head : block;
    MeasuredUnits units;
    Fill(embedding_and_block - block, 0, &units.embedding);
    Fill(block, 2, &units.block);
    Fill(tail, 3, &units.tail_block);
    Fill(tail_and_head - tail, 4, &units.head);
    const uint64_t rows = uint64_t{config_.sequences} * config_.tokens;
    units.block.activation_bytes = units.tail_block.activation_bytes = BlockActivationBytes(config_);
    units.embedding.activation_bytes = rows * static_cast<uint64_t>(config_.model.width) * sizeof(float);
    units.head.activation_bytes = rows * static_cast<uint64_t>(config_.model.vocabulary) * sizeof(float);
    return units;
  }

 private:
  StageModel Model(int64_t layers, int64_t tail_layers, uint32_t first, uint32_t end) const {
    ModelConfig model = config_.model;
    model.layers = layers;
    model.tail_layers = tail_layers;
    return StageModel(model, config_.seed, first, end, device_);
  }

  // Waits until the device has done its work.
  void Finish(const at::Tensor& result) const {
    if (!device_.is_cpu()) result.detach().flatten().narrow(0, 0, 1).cpu();
  }

  Seconds TimeRange(int64_t layers, int64_t tail_layers, uint32_t first, uint32_t end) const {
    const StageModel model = Model(layers, tail_layers, first, end);
    const auto options = at::TensorOptions().dtype(at::kFloat).device(device_);
    const at::Tensor flat = at::zeros({model.flat_size()}, options), sums = at::zeros_like(flat);
    model.Initialize(flat);
    const std::vector<at::Tensor> weights = model.Views(flat, true), gradients = model.Views(sums, false);
    for (size_t q = 0; q < weights.size(); ++q) weights[q].mutable_grad() = gradients[q];
    const int64_t rows = int64_t{config_.sequences} * config_.tokens, columns = config_.model.boundary_columns();
    StageModel::Batch batch;
    batch.ids = at::arange(rows, at::kLong).remainder_(config_.model.vocabulary);
    batch.ids = batch.ids.view({config_.sequences, config_.tokens}).to(device_);
    batch.labels = batch.ids;
    at::Tensor input;
    if (first > 0) input = at::arange(rows * columns, options).mul_(0.37).sin_().view({rows, columns});
    const at::Tensor upper = at::full({rows, columns}, 1e-4, options);
    // The last stage never computes its forward twice.
    const bool is_head = end == model_units(layers);
    const bool recompute =
        !is_head && ChooseRecompute(config_, kNominalBlocks, kNominalWindow, FreeMemoryBytes(device_));
    const std::vector<double> seconds = Measure([&]() -> std::vector<double> {
      at::Tensor leaf = input.defined() ? input.detach() : input;
      double loss_sum = 0;
      const double begin = Now();
      if (leaf.defined()) leaf.set_requires_grad(true);
      at::Tensor output = [&] {
        const at::AutoGradMode grad_mode(!recompute);
        return model.Forward(weights, leaf, batch, &loss_sum);
      }();
      Finish(output);
      const double between = Now();
      if (recompute) output = model.Forward(weights, leaf, batch, &loss_sum);
      torch::autograd::backward({output}, {is_head ? at::Tensor() : upper});
      Finish(sums);
      return {between - begin, Now() - between};
    });
    return {seconds[0], seconds[1]};
  }

  static uint32_t model_units(int64_t layers) { return static_cast<uint32_t>(layers) + 2; }

  // Times of one unit, and the update of `unit` in a model of three blocks.
  void Fill(const Seconds& seconds, uint32_t unit, MeasuredUnit* measured) const {
    const StageModel model = Model(3, 1, 0, model_units(3));
    std::vector<ParameterInfo> parameters;
    for (const ParameterInfo& info : model.parameters()) {
      if (info.unit == unit) parameters.push_back(info);
    }
    std::vector<at::Tensor> weights, gradients;
    for (const ParameterInfo& info : parameters) {
      const auto options = at::TensorOptions().dtype(at::kFloat).device(device_);
      weights.push_back(at::full(info.shape, 0.01, options));
      gradients.push_back(at::full(info.shape, 0.001, options));
      measured->parameters += static_cast<uint64_t>(info.numel);
    }
    StageOptimizer optimizer(config_.optimizer, model_of_three(), parameters, device_);
    uint64_t step = 0;
    measured->forward_seconds = seconds.forward;
    measured->backward_seconds = seconds.backward;
    measured->update_seconds = Measure([&]() -> std::vector<double> {
      const double begin = Now();
      StageOptimizer::SquareNorms(gradients, 1.0);
      optimizer.Update(step++, weights, gradients, 1.0, /*delayed=*/true, /*skip=*/false);
      if (!gradients.empty()) Finish(gradients.front());
      return {Now() - begin};
    })[0];
  }

  ModelConfig model_of_three() const {
    ModelConfig model = config_.model;
    model.layers = 3;
    model.tail_layers = 1;
    return model;
  }

  const RunConfig& config_;
  const at::Device device_;
};

}  // namespace

absl::StatusOr<MeasuredUnits> MeasureTorchUnits(const RunConfig& config, const std::string& device) {
  ConfigureTorch(config.threads);
  ASSIGN_OR_RETURN(const at::Device torch_device, OpenTorchDevice(device));
  return CatchTorch("measuring units",
                    [&]() -> absl::StatusOr<MeasuredUnits> { return Probe(config, torch_device).Run(); });
}

absl::StatusOr<ExecutorFingerprint> TorchFingerprint(const RunConfig& config) {
  ConfigureTorch(config.threads);
  return CatchTorch("fingerprint", [&]() -> absl::StatusOr<ExecutorFingerprint> {
    const StageModel model(config.model, config.seed, 0, config.model.num_units(), at::kCPU);
    return ExecutorFingerprint{model.BasisSha256(), model.AnchorSha256()};
  });
}

}  // namespace stagecoach
