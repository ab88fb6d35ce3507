#include "model/optimizer_kernels.h"

#include <cmath>

#include "model/cpu_clones.h"

namespace stagecoach {
namespace {

struct Arrays {
  const float* weight;
  float *gradient, *m, *v, *previous;
  int64_t count;
};

template <bool kHasV, bool kHasPrevious>
STAGECOACH_INLINE void Loop(const ElementwiseRule& rule, const ApplyRule& apply, const Arrays& a) {
  for (int64_t i = 0; i < a.count; ++i) {
    const float g = a.gradient[i] * rule.scale;
    const float m = rule.keep_m * a.m[i] + rule.add_m * g;
    a.m[i] = m;
    float u = rule.step_g * g + rule.step_m * m;
    if constexpr (kHasV) {
      const float v = rule.keep_v * a.v[i] + rule.add_v * (g * g);
      a.v[i] = v;
      u /= std::sqrt(v) * rule.root_scale + rule.epsilon;
    }
    float step = u;
    if constexpr (kHasPrevious) {
      step += apply.feedback * (u - a.previous[i]);
      a.previous[i] = u;
    }
    a.gradient[i] = apply.keep_weight * a.weight[i] - step;
  }
}

STAGECOACH_CPU_CLONES void LoopV(const ElementwiseRule& r, const ApplyRule& p, const Arrays& a) {
  Loop<true, false>(r, p, a);
}
STAGECOACH_CPU_CLONES void LoopVPrevious(const ElementwiseRule& r, const ApplyRule& p, const Arrays& a) {
  Loop<true, true>(r, p, a);
}
STAGECOACH_CPU_CLONES void LoopM(const ElementwiseRule& r, const ApplyRule& p, const Arrays& a) {
  Loop<false, false>(r, p, a);
}
STAGECOACH_CPU_CLONES void LoopMPrevious(const ElementwiseRule& r, const ApplyRule& p, const Arrays& a) {
  Loop<false, true>(r, p, a);
}

float* Pointer(at::Tensor* tensor) { return tensor->defined() ? tensor->mutable_data_ptr<float>() : nullptr; }

void RunOnCpu(const ElementwiseRule& rule, const ApplyRule& apply, const Arrays& arrays) {
  if (arrays.v != nullptr) {
    arrays.previous != nullptr ? LoopVPrevious(rule, apply, arrays) : LoopV(rule, apply, arrays);
  } else {
    arrays.previous != nullptr ? LoopMPrevious(rule, apply, arrays) : LoopM(rule, apply, arrays);
  }
}

}  // namespace

void UpdateElementwise(const ElementwiseRule& rule, const ApplyRule& apply, const at::Tensor& weight,
                       at::Tensor gradient, at::Tensor m, at::Tensor v, at::Tensor previous) {
  if (gradient.is_cpu()) {
    TORCH_CHECK(weight.is_contiguous() && gradient.is_contiguous(), "parameters are views of a flat buffer");
    RunOnCpu(rule, apply,
             {weight.const_data_ptr<float>(), Pointer(&gradient), Pointer(&m), Pointer(&v), Pointer(&previous),
              weight.numel()});
    return;
  }
  gradient.mul_(rule.scale);
  m.mul_(rule.keep_m).add_(gradient, rule.add_m);
  at::Tensor u = (m * rule.step_m).add_(gradient, rule.step_g);
  if (v.defined()) {
    v.mul_(rule.keep_v).addcmul_(gradient, gradient, rule.add_v);
    u.div_(v.sqrt().mul_(rule.root_scale).add_(rule.epsilon));
  }
  ApplyUpdate(apply, u, weight, gradient, previous);
}

void ApplyUpdate(const ApplyRule& apply, at::Tensor u, const at::Tensor& weight, at::Tensor target,
                 at::Tensor previous) {
  at::mul_out(target, weight, at::scalar_tensor(apply.keep_weight, weight.options()));
  target.sub_(u);
  if (!previous.defined()) return;
  // target -= feedback (u - previous)
  if (apply.feedback != 0) target.sub_(previous.sub_(u).neg_(), apply.feedback);
  previous.copy_(u);
}

}  // namespace stagecoach
