#include "model/attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "model/cpu_clones.h"

namespace stagecoach {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <typename T>
struct RotateArguments {
  const T *x, *table;
  T* out;
  int64_t rows, tokens, heads, head_width;
  T direction;  // 1, or -1 for the inverse rotation
};

template <typename T>
STAGECOACH_INLINE void RunRotate(const RotateArguments<T>& a) {
  const int64_t half = a.head_width / 2;
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* cosine = a.table + (row % a.tokens) * 2 * half;
    const T* sine = cosine + half;
    for (int64_t head = 0; head < a.heads; ++head) {
      const T* x = a.x + (row * a.heads + head) * a.head_width;
      T* out = a.out + (row * a.heads + head) * a.head_width;
      for (int64_t j = 0; j < half; ++j) {
        const T s = sine[j] * a.direction;
        out[j] = x[j] * cosine[j] - x[j + half] * s;
        out[j + half] = x[j + half] * cosine[j] + x[j] * s;
      }
      if (a.head_width % 2 == 1) out[a.head_width - 1] = x[a.head_width - 1];
    }
  }
}

STAGECOACH_CPU_CLONES void Rotate32(const RotateArguments<float>& a) { RunRotate(a); }
void Run(const RotateArguments<float>& a) { Rotate32(a); }
void Run(const RotateArguments<double>& a) { RunRotate(a); }

at::Tensor RotateTensor(const at::Tensor& x_in, const at::Tensor& table, int64_t tokens, int64_t head_width,
                        int direction) {
  const at::Tensor x = x_in.contiguous();
  const int64_t half = head_width / 2, heads = x.size(1) / head_width;
  at::Tensor out = at::empty_like(x);
  if (x.is_cpu()) {
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "Rotate", [&] {
      Run(RotateArguments<scalar_t>{x.const_data_ptr<scalar_t>(), table.const_data_ptr<scalar_t>(),
                                    out.mutable_data_ptr<scalar_t>(), x.size(0), tokens, heads, head_width,
                                    static_cast<scalar_t>(direction)});
    });
    return out;
  }
  const at::Tensor in4 = x.view({-1, tokens, heads, head_width}), out4 = out.view({-1, tokens, heads, head_width});
  const at::Tensor rows = table.narrow(0, 0, tokens);
  const at::Tensor cosine = rows.select(1, 0).unsqueeze(1), sine = rows.select(1, 1).unsqueeze(1) * direction;
  const at::Tensor low = in4.narrow(3, 0, half), high = in4.narrow(3, half, half);
  out4.copy_(in4);
  out4.narrow(3, 0, half).copy_(low * cosine - high * sine);
  out4.narrow(3, half, half).copy_(high * cosine + low * sine);
  return out;
}

class Rotation : public Function<Rotation> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& table, int64_t tokens,
                            int64_t head_width) {
    context->saved_data["table"] = table;
    context->saved_data["tokens"] = tokens;
    context->saved_data["head_width"] = head_width;
    return RotateTensor(x, table, tokens, head_width, 1);
  }
  static variable_list backward(AutogradContext* context, variable_list uppers) {
    auto& saved = context->saved_data;
    return {
        RotateTensor(uppers[0], saved["table"].toTensor(), saved["tokens"].toInt(), saved["head_width"].toInt(), -1),
        at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// rows x (heads * width) -> batch x heads x tokens x width, a view.
at::Tensor Heads(const at::Tensor& rows, const AttentionShape& shape, int64_t heads) {
  return rows.view({shape.batch, shape.tokens, heads, shape.head_width}).transpose(1, 2);
}

// A copy of each kv head for every query head that it serves.
at::Tensor Repeat(const at::Tensor& heads, const AttentionShape& shape) {
  const int64_t group = shape.heads / shape.kv_heads;
  if (group == 1) return heads;
  return heads.unsqueeze(2)
      .expand({shape.batch, shape.kv_heads, group, shape.tokens, shape.head_width})
      .reshape({shape.batch, shape.heads, shape.tokens, shape.head_width});
}

}  // namespace

RotaryTable::RotaryTable(int64_t max_tokens, int64_t head_width, double theta, at::Device device) {
  const int64_t half = head_width / 2;
  at::Tensor table = at::empty({max_tokens, 2, half}, at::kDouble);
  double* out = table.mutable_data_ptr<double>();
  for (int64_t t = 0; t < max_tokens; ++t) {
    for (int64_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(t) * std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_width));
      out[t * 2 * half + j] = std::cos(angle);
      out[t * 2 * half + half + j] = std::sin(angle);
    }
  }
  table64_ = table.to(device);
  table_ = table64_.to(at::kFloat);
}

at::Tensor RotaryTable::Rotate(const at::Tensor& x, int64_t tokens, int64_t head_width) const {
  TORCH_CHECK(tokens <= table_.size(0), "sequence of ", tokens, " tokens, but max_tokens is ", table_.size(0));
  return Rotation::apply(x, x.scalar_type() == at::kDouble ? table64_ : table_, tokens, head_width);
}

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape) {
  const at::Tensor query = Heads(q, shape, shape.heads);
  const at::Tensor key = Repeat(Heads(k, shape, shape.kv_heads), shape);
  const at::Tensor value = Repeat(Heads(v, shape, shape.kv_heads), shape);
  at::Tensor out;
  if (q.is_cpu()) {
    // Named directly: the general entry point would choose by shape.
    out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, /*dropout_p=*/0.0,
                                                                      /*is_causal=*/true));
  } else {
    out = at::scaled_dot_product_attention(query, key, value, {}, /*dropout_p=*/0.0, /*is_causal=*/true);
  }
  return out.transpose(1, 2).reshape({shape.batch * shape.tokens, shape.heads * shape.head_width});
}

}  // namespace stagecoach
