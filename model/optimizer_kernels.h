// The arithmetic of one parameter's update. Element by element, so the bits do not depend on threads or vector width.
//
// Threading: pure functions on the caller's tensors.
#pragma once

#include <ATen/ATen.h>

namespace stagecoach {

// AdamW, NAdam and SGD in one form, g = scale * gradient:
//   m = keep_m m + add_m g;   v = keep_v v + add_v g^2;
//   u = (step_g g + step_m m) / (sqrt(v) root_scale + epsilon)        (without v: no division)
struct ElementwiseRule {
  float scale = 1;
  float keep_m = 0, add_m = 1;
  float keep_v = 0, add_v = 0;
  float step_g = 0, step_m = 0;
  float root_scale = 1, epsilon = 0;
};

//   step = u + feedback (u - previous);   previous = u;   new weight = keep_weight * weight - step
struct ApplyRule {
  float keep_weight = 1;  // 1 - eta lambda
  float feedback = 0;     // rho while it is in effect, else 0
};

// v and previous may be undefined. `gradient` is overwritten by the new weight.
void UpdateElementwise(const ElementwiseRule& rule, const ApplyRule& apply, const at::Tensor& weight,
                       at::Tensor gradient, at::Tensor m, at::Tensor v, at::Tensor previous);

// The same end for a step u that was computed elsewhere (Muon). u is overwritten.
void ApplyUpdate(const ApplyRule& apply, at::Tensor u, const at::Tensor& weight, at::Tensor target,
                 at::Tensor previous);

}  // namespace stagecoach
