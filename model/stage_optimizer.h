// The optimizer of one stage: state tensors for its parameters and the out-of-place update
//   W^(t+1) = (1 - eta_t lambda) W^(t) - step_t,   step_t = u_t + rho (u_t - u_{t-1}) when J_t > 0, else u_t.
// AdamW, Muon (2-D block weights; the rest AdamW), NAdam, SGD with momentum. Formulas: docs/architecture.md,
// "Optimizers". Every parameter is updated by its own operations, so the result does not depend on where the model is
// cut.
//
// Threading: one compute thread. Ownership: state lives here, weights and gradients in the caller's buffers.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "model/optimizer_kernels.h"
#include "model/run_config.h"
#include "model/stage_model.h"

namespace stagecoach {

// eta of step t before any per-parameter factor: warm-up, then the schedule. `peak` = learning_rate or
// muon_learning_rate.
double RateAt(const OptimizerConfig& config, double peak, uint64_t step);

class StageOptimizer {
 public:
  StageOptimizer(const OptimizerConfig& config, const ModelConfig& model, std::vector<ParameterInfo> parameters,
                 at::Device device);

  // weights: W^(t) views. gradients: views of the gradient sum, which are OVERWRITTEN by W^(t+1). scale = c_t / M.
  // `delayed`: J_t > 0. Nothing changes but gradients := weights if `skip`.
  void Update(uint64_t step, const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& gradients,
              double scale, bool delayed, bool skip);

  // S_q of each parameter: sum of ((1/M) g)^2 in double; blocks of 1,024 elements, elements in order, blocks in order.
  static std::vector<double> SquareNorms(const std::vector<at::Tensor>& gradients, double one_over_m);

  uint64_t applied_updates() const;  // a

  // State of parameter q as (kind, tensor): kinds m, v, u (previous step). For checkpoints.
  std::vector<std::pair<std::string, at::Tensor>> StateOf(size_t parameter) const;
  void SetApplied(uint64_t applied, double nadam_product);  // after loading
  double nadam_product() const;

 private:
  bool UsesMuon(const ParameterInfo& info) const;
  // AdamW, NAdam or SGD for this parameter at update number applied_.
  ElementwiseRule RuleFor(const ParameterInfo& info, double rate) const;

  OptimizerConfig config_;
  ModelConfig model_;
  std::vector<ParameterInfo> parameters_;
  std::vector<at::Tensor> m_, v_, previous_;
  uint64_t applied_ = 0;
  double nadam_product_ = 1;
};

}  // namespace stagecoach
