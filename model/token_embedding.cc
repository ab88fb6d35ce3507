#include "model/token_embedding.h"

#include <torch/csrc/autograd/custom_function.h>

namespace stagecoach {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <typename T>
void ScatterRows(const at::Tensor& upper, const at::Tensor& ids, at::Tensor* table) {
  const int64_t columns = upper.size(1), rows = table->size(0);
  const T* from = upper.const_data_ptr<T>();
  const int64_t* id = ids.const_data_ptr<int64_t>();
  T* to = table->mutable_data_ptr<T>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    TORCH_CHECK(id[i] >= 0 && id[i] < rows, "token id ", id[i], " is not below ", rows);
    for (int64_t j = 0; j < columns; ++j) to[id[i] * columns + j] += from[i * columns + j];
  }
}

class Embedding : public Function<Embedding> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& ids) {
    context->saved_data["ids"] = ids;
    context->saved_data["rows"] = table.size(0);
    return at::index_select(table, 0, ids);
  }
  static variable_list backward(AutogradContext* context, variable_list uppers) {
    const at::Tensor ids = context->saved_data["ids"].toTensor();
    const int64_t rows = context->saved_data["rows"].toInt();
    const at::Tensor upper = uppers[0].contiguous();
    if (!upper.is_cpu()) {
      return {at::embedding_dense_backward(upper, ids, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false),
              at::Tensor()};
    }
    at::Tensor table = at::zeros({rows, upper.size(1)}, upper.options());
    AT_DISPATCH_FLOATING_TYPES(upper.scalar_type(), "Embedding", [&] { ScatterRows<scalar_t>(upper, ids, &table); });
    return {table, at::Tensor()};
  }
};

}  // namespace

at::Tensor EmbedTokens(const at::Tensor& table, const at::Tensor& ids) {
  return Embedding::apply(table, ids.reshape({-1}).to(table.device()));
}

}  // namespace stagecoach
