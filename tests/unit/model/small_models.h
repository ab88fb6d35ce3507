// Tiny models and batches for tests.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "common/counter_rng.h"
#include "model/run_config.h"
#include "model/stage_model.h"

namespace stagecoach {

inline ModelConfig SmallLlama() {
  ModelConfig config;
  config.width = 16;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.feedforward = 24;
  config.vocabulary = 23;
  config.max_tokens = 12;
  return config;
}

inline ModelConfig SmallGpt2() {
  ModelConfig config = SmallLlama();
  config.architecture = Architecture::kGpt2;
  config.kv_heads = 4;
  return config;
}

inline ModelConfig WithSubspace(ModelConfig config, NormPlacement norm = NormPlacement::kReordered) {
  config.compression = Compression::kSubspace;
  config.norm = norm;
  config.rank = 6;
  config.tail_layers = 1;
  return config;
}

inline ModelConfig Reordered(ModelConfig config) {
  config.norm = NormPlacement::kReordered;
  return config;
}

// Every kind of layer: both architectures, both norms, dense and subspace.
inline std::vector<std::pair<std::string, ModelConfig>> AllKinds() {
  return {{"llama", SmallLlama()},
          {"llama_reordered", Reordered(SmallLlama())},
          {"llama_subspace", WithSubspace(SmallLlama())},
          {"llama_subspace_pre", WithSubspace(SmallLlama(), NormPlacement::kPre)},
          {"gpt2", SmallGpt2()},
          {"gpt2_reordered", Reordered(SmallGpt2())},
          {"gpt2_subspace", WithSubspace(SmallGpt2())},
          {"gpt2_subspace_pre", WithSubspace(SmallGpt2(), NormPlacement::kPre)}};
}

inline StageModel::Batch SmallBatch(const ModelConfig& config, uint64_t n, int64_t sequences = 2, int64_t tokens = 8) {
  StageModel::Batch batch;
  batch.n = n;
  batch.ids = at::empty({sequences, tokens}, at::kLong);
  batch.labels = at::empty_like(batch.ids);
  const CounterRng rng(5, RngPurpose::kTest, n);
  for (int64_t i = 0; i < batch.ids.numel(); ++i) {
    const auto words = rng.Block(static_cast<uint64_t>(i));
    batch.ids.data_ptr<int64_t>()[i] = words[0] % config.vocabulary;
    batch.labels.data_ptr<int64_t>()[i] = words[1] % config.vocabulary;
  }
  return batch;
}

inline at::Tensor InitialWeights(const StageModel& model) {
  at::Tensor flat = at::empty({model.flat_size()}, at::kFloat);
  model.Initialize(flat);
  return flat;
}

// Uniform in [-1, 1): the same for every run.
inline at::Tensor TestValues(at::IntArrayRef shape, uint64_t stream, at::ScalarType type = at::kFloat) {
  at::Tensor values = at::empty(shape, at::kDouble);
  const CounterRng rng(9, RngPurpose::kTest, stream);
  for (int64_t i = 0; i < values.numel(); ++i) {
    values.data_ptr<double>()[i] = static_cast<double>(rng.Word(static_cast<uint64_t>(i))) / 2147483648.0 - 1.0;
  }
  return values.to(type);
}

inline bool SameBits(const at::Tensor& a, const at::Tensor& b) { return a.sizes() == b.sizes() && at::equal(a, b); }

}  // namespace stagecoach
