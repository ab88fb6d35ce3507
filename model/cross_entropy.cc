#include "model/cross_entropy.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "model/linear.h"

namespace stagecoach {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// 8 MiB of logits in fp32: they stay in the last-level cache between the two matrix products and the softmax.
constexpr int64_t kMaxChunkElements = int64_t{1} << 21;
constexpr int64_t kMinChunkRows = 32;  // below that the products become thin

struct HeadResult {
  double loss_sum = 0;
  at::Tensor hidden_gradient, weight_gradient;  // of the mean loss; undefined if not asked for
};

// Sum in row order, whatever the device.
double SumInRowOrder(const at::Tensor& losses) {
  const at::Tensor host = losses.to(at::kCPU, at::kDouble).contiguous();
  double sum = 0;
  for (int64_t i = 0; i < host.numel(); ++i) sum += host.const_data_ptr<double>()[i];
  return sum;
}

// p - onehot(label), in place of log p. Plain indexing on the CPU: one element a row.
void ToLogitGradient(at::Tensor* log_p, const at::Tensor& labels) {
  log_p->exp_();
  log_p->scatter_add_(1, labels.unsqueeze(1), at::full({labels.numel(), 1}, -1, log_p->options()));
}

HeadResult RunHead(const at::Tensor& hidden_in, const at::Tensor& weight_in, const at::Tensor& labels,
                   ComputeType compute, bool with_gradient) {
  const bool bf16 = RoundsToBf16(compute, hidden_in);
  const at::ScalarType type = bf16 ? at::kBFloat16 : hidden_in.scalar_type();
  const at::Tensor hidden = hidden_in.to(type), weight = weight_in.to(type);
  const int64_t rows = hidden.size(0), vocabulary = weight.size(0);
  const int64_t chunk = std::max(kMinChunkRows, kMaxChunkElements / vocabulary);
  const double scale = 1.0 / static_cast<double>(rows);
  HeadResult result;
  if (with_gradient) {
    result.hidden_gradient = at::empty(hidden.sizes(), hidden_in.options());
    result.weight_gradient = at::empty(weight.sizes(), weight_in.options());
  }
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const at::Tensor part = hidden.narrow(0, first, count), label = labels.narrow(0, first, count);
    at::Tensor log_p = at::_log_softmax(at::mm(part, weight.t()).to(hidden_in.scalar_type()), 1, false);
    result.loss_sum -= SumInRowOrder(log_p.gather(1, label.unsqueeze(1)));
    if (!with_gradient) continue;
    ToLogitGradient(&log_p, label);
    at::Tensor upper = result.hidden_gradient.narrow(0, first, count);
    const double keep = first == 0 ? 0 : 1;
    if (bf16) {
      const at::Tensor rounded = log_p.to(type);
      upper.copy_(at::mm(rounded, weight)).mul_(scale);
      const at::Tensor product = at::mm(rounded.t(), part).to(at::kFloat).mul_(scale);
      first == 0 ? result.weight_gradient.copy_(product) : result.weight_gradient.add_(product);
    } else {
      at::addmm_out(upper, upper, log_p, weight, /*beta=*/0, /*alpha=*/scale);
      result.weight_gradient.addmm_(log_p.t(), part, keep, scale);
    }
  }
  return result;
}

class Head : public Function<Head> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& labels, ComputeType compute, bool with_gradient, double* loss_sum) {
    const HeadResult result = RunHead(hidden, weight, labels, compute, with_gradient);
    context->saved_data["hidden"] = result.hidden_gradient;
    context->saved_data["weight"] = result.weight_gradient;
    if (loss_sum != nullptr) *loss_sum = result.loss_sum;
    return at::scalar_tensor(result.loss_sum / static_cast<double>(hidden.size(0)), hidden.options());
  }
  static variable_list backward(AutogradContext* context, variable_list uppers) {
    at::Tensor hidden = context->saved_data["hidden"].toTensor(), weight = context->saved_data["weight"].toTensor();
    TORCH_CHECK(hidden.defined(), "the loss was computed without gradients");
    // The mean loss is where backward starts, so the factor is 1 unless a caller scaled the loss.
    if (uppers[0].item<double>() != 1.0) {
      hidden = hidden * uppers[0];
      weight = weight * uppers[0];
    }
    return {hidden, weight, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor HeadCrossEntropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                            ComputeType compute, double* loss_sum) {
  const bool with_gradient = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  return Head::apply(hidden, weight, labels.reshape({-1}).to(hidden.device()), compute, with_gradient, loss_sum);
}

}  // namespace stagecoach
