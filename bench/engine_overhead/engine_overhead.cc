// What the engine costs on top of the arithmetic: one stage that holds the whole model, driven by StageCore and the
// torch executor, against a plain libtorch loop over the same model functions (forward, backward, clip_grad_norm_,
// AdamW of torch). Steps of both alternate in one process, so that both meet the same load. One JSON line on standard
// output.
//
// usage: engine_overhead [rounds]
#include <time.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/counter_rng.h"
#include "model/data/token_dataset.h"
#include "model/stage_model.h"
#include "worker/compute/executor_factory.h"
#include "worker/domain/stage_core.h"
#include "worker/main/stage_compute.h"

namespace stagecoach {
namespace {

double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

RunConfig BenchConfig(const std::string& data_path, uint64_t steps) {
  RunConfig config;
  ModelConfig& model = config.model;
  model.width = 256;
  model.layers = 4;
  model.heads = model.kv_heads = 4;
  model.feedforward = 704;
  model.vocabulary = 256;
  model.max_tokens = 256;
  config.microbatches = 4;
  config.sequences = 4;
  config.tokens = 256;
  config.total_steps = config.optimizer.total_steps = steps;
  config.data_path = data_path;
  config.training_windows = 700;
  config.evaluation_windows = 10;
  return config;
}

// Steps of the run by the engine.
class EngineLoop {
 public:
  explicit EngineLoop(const RunConfig& config) : core_(CoreConfig(config)) {
    ExecutorOptions options;
    options.config = config;
    options.window = 2;
    options.pool = HostBufferPool::Create(1 << 20);
    auto executor = CreateTorchExecutor(options);
    if (!executor.ok()) Die(executor.status());
    executor_ = *std::move(executor);
    Take(core_.Start());
  }

  double Step() {
    for (;;) {
      const ComputeEffect effect = *std::exchange(pending_, std::nullopt);
      ComputeOutcome outcome = RunOnExecutor(*executor_, effect, Payload{});
      if (!outcome.status.ok()) Die(outcome.status);
      if (std::holds_alternative<RunForwardBackward>(effect)) loss_ = outcome.loss;
      Take(core_.OnComputeDone(std::move(outcome.norms)));
      if (std::holds_alternative<RunUpdate>(effect)) return loss_;
    }
  }

 private:
  [[noreturn]] static void Die(const absl::Status& status) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  static StageCoreConfig CoreConfig(const RunConfig& config) {
    StageCoreConfig core;
    core.window = 2;
    core.rule = config.RuleOfStage(0);
    core.order = config.Order();
    core.total_steps = core.end_step = config.total_steps;
    core.clip_norm = config.clip_norm;
    return core;
  }

  void Take(StageEffects effects) {
    if (!effects.ok()) Die(effects.status());
    for (StageEffect& effect : *effects) {
      std::visit(
          [&](auto& value) {
            if constexpr (std::is_constructible_v<ComputeEffect, decltype(value)>) pending_ = std::move(value);
          },
          effect);
    }
  }

  StageCore core_;
  std::unique_ptr<StageExecutor> executor_;
  std::optional<ComputeEffect> pending_;
  double loss_ = 0;
};

// The same steps as a loop that a user of libtorch would write.
class PlainLoop {
 public:
  explicit PlainLoop(const RunConfig& config)
      : config_(config),
        data_(*TokenDataset::Open(config.data_path, false)),
        model_(config.model, config.seed, 0, config.model.num_units(), at::kCPU) {
    const at::Tensor flat = at::zeros({model_.flat_size()}, at::kFloat);
    model_.Initialize(flat);
    for (const at::Tensor& view : model_.Views(flat, false)) {
      parameters_.push_back(view.clone().set_requires_grad(true));
    }
    optimizer_ = std::make_unique<torch::optim::AdamW>(
        parameters_, torch::optim::AdamWOptions(3e-4).betas({0.9, 0.95}).weight_decay(0.1));
  }

  double Step() {
    optimizer_->zero_grad();
    double loss_value = 0;
    for (uint32_t j = 0; j < config_.microbatches; ++j) {
      StageModel::Batch batch;
      batch.n = n_++;
      batch.ids = at::empty({config_.sequences, config_.tokens}, at::kLong);
      batch.labels = at::empty_like(batch.ids);
      const auto count = static_cast<size_t>(batch.ids.numel());
      ReadMicrobatch(data_, config_.seed, config_.training_windows, batch.n, config_.sequences, config_.tokens,
                     {batch.ids.mutable_data_ptr<int64_t>(), count}, {batch.labels.mutable_data_ptr<int64_t>(), count});
      const at::Tensor loss = model_.Forward(parameters_, at::Tensor(), batch, nullptr);
      torch::autograd::backward({loss / static_cast<double>(config_.microbatches)}, {});
      loss_value = loss.item<double>();
    }
    torch::nn::utils::clip_grad_norm_(parameters_, config_.clip_norm);
    optimizer_->step();
    return loss_value;
  }

 private:
  const RunConfig& config_;
  const TokenDataset data_;
  const StageModel model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  uint64_t n_ = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// CPU seconds of the step that other processes disturbed least.
double Least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

struct Timing {
  std::vector<double> wall, cpu;
  double loss = 0;
  template <typename Loop>
  void Add(Loop& loop) {
    const double wall_begin = Seconds(CLOCK_MONOTONIC), cpu_begin = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    loss = loop.Step();
    wall.push_back(Seconds(CLOCK_MONOTONIC) - wall_begin);
    cpu.push_back(Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin);
  }
};

int Run(int rounds) {
  std::string bytes;
  const CounterRng rng(1, RngPurpose::kTest, 1);
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto token = static_cast<uint16_t>(rng.Word(i) % 256);
    bytes.append(reinterpret_cast<const char*>(&token), sizeof(token));
  }
  const std::string path = "/tmp/engine-overhead-" + std::to_string(getpid()) + ".bin";
  std::ofstream(path, std::ios::binary) << bytes;
  const RunConfig config = BenchConfig(path, static_cast<uint64_t>(rounds) + 2);
  EngineLoop engine(config);
  PlainLoop plain(config);
  std::remove(path.c_str());
  engine.Step();
  plain.Step();
  Timing of_engine, of_plain;
  for (int round = 0; round < rounds; ++round) {
    of_engine.Add(engine);
    of_plain.Add(plain);
  }
  const double tokens = static_cast<double>(config.microbatches) * config.sequences * config.tokens;
  const double engine_cpu = tokens / Least(of_engine.cpu), plain_cpu = tokens / Least(of_plain.cpu);
  std::printf(
      "{\"rounds\": %d, \"tokens_per_step\": %.0f, \"engine_tokens_per_second\": %.1f, \"libtorch_tokens_per_second\": "
      "%.1f, "
      "\"engine_tokens_per_cpu_second\": %.1f, \"libtorch_tokens_per_cpu_second\": %.1f, \"ratio_to_libtorch_cpu\": "
      "%.4f, "
      "\"ratio_to_libtorch_wall\": %.4f, \"engine_loss\": %.4f, \"libtorch_loss\": %.4f}\n",
      rounds, tokens, tokens / Median(of_engine.wall), tokens / Median(of_plain.wall), engine_cpu, plain_cpu,
      engine_cpu / plain_cpu, Median(of_plain.wall) / Median(of_engine.wall), of_engine.loss, of_plain.loss);
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 8); }
