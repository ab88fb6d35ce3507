#include "model/newton_schulz.h"

namespace stagecoach {

at::Tensor NewtonSchulz(const at::Tensor& matrix) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  constexpr int kIterations = 5;
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t().contiguous() : matrix.clone();
  x.div_(x.norm() + 1e-7);
  at::Tensor gram = at::empty({x.size(0), x.size(0)}, x.options()), polynomial = at::empty_like(gram);
  at::Tensor next = at::empty_like(x);
  for (int i = 0; i < kIterations; ++i) {
    at::mm_out(gram, x, x.t());
    at::addmm_out(polynomial, gram, gram, gram, /*beta=*/kB, /*alpha=*/kC);
    at::addmm_out(next, x, polynomial, x, /*beta=*/kA, /*alpha=*/1);
    std::swap(x, next);
  }
  return tall ? x.t() : x;
}

}  // namespace stagecoach
