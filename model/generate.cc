#include "model/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/counter_rng.h"

namespace stagecoach {
namespace {

// Inverse transform over the candidates in order of (logit, then lower id). `uniform` in [0, 1).
int64_t Sample(const std::vector<double>& logits, const GenerateOptions& options, double uniform) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  const double best = logits[static_cast<size_t>(order[0])];
  std::vector<double> weights;
  double total = 0;
  for (const int64_t id : order) {
    weights.push_back(std::exp((logits[static_cast<size_t>(id)] - best) / options.temperature));
    total += weights.back();
  }
  double left = uniform * total;
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

}  // namespace

std::vector<int64_t> Generate(const StageModel& model, const std::vector<at::Tensor>& parameters,
                              const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  TORCH_CHECK(!prompt.empty() && options.window > 0, "generation needs a prompt of at least one token");
  const CounterRng rng(options.seed, RngPurpose::kSample);
  const at::Device device = parameters.front().device();
  std::vector<int64_t> text = prompt, generated;
  for (int64_t i = 0; i < options.count; ++i) {
    const size_t length = std::min(text.size(), static_cast<size_t>(options.window));
    at::Tensor ids = at::empty({1, static_cast<int64_t>(length)}, at::kLong);
    std::copy(text.end() - static_cast<std::ptrdiff_t>(length), text.end(), ids.mutable_data_ptr<int64_t>());
    const at::Tensor logits = model.Logits(parameters, ids.to(device));
    const at::Tensor row = logits.select(0, logits.size(0) - 1).to(at::kCPU, at::kDouble).contiguous();
    const double* values = row.const_data_ptr<double>();
    const double uniform = static_cast<double>(rng.Word(static_cast<uint64_t>(i))) / 4294967296.0;
    generated.push_back(Sample(std::vector<double>(values, values + row.numel()), options, uniform));
    text.push_back(generated.back());
  }
  return generated;
}

}  // namespace stagecoach
