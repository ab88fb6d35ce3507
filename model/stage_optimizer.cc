#include "model/stage_optimizer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/newton_schulz.h"
#include "model/optimizer_kernels.h"

namespace stagecoach {
namespace {

constexpr double kNAdamPsi = 0.004;  // 2505.01099

double NAdamMomentum(const OptimizerConfig& config, double applied) {
  return config.beta1 * (1 - 0.5 * std::pow(0.96, applied * kNAdamPsi));
}

bool Decays(ParameterRole role) { return role == ParameterRole::kMatrix || role == ParameterRole::kHead; }

// AdamW, also for what Muon leaves to it.
ElementwiseRule AdamWRule(const OptimizerConfig& config, double rate, double applied) {
  ElementwiseRule rule;
  rule.keep_m = static_cast<float>(config.beta1);
  rule.add_m = static_cast<float>(1 - config.beta1);
  rule.keep_v = static_cast<float>(config.beta2);
  rule.add_v = static_cast<float>(1 - config.beta2);
  rule.step_m = static_cast<float>(rate / (1 - std::pow(config.beta1, applied)));
  rule.root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(config.beta2, applied)));
  rule.epsilon = static_cast<float>(config.epsilon);
  return rule;
}

// product: of the momenta 1..applied.
ElementwiseRule NAdamRule(const OptimizerConfig& config, double rate, double applied, double product) {
  ElementwiseRule rule = AdamWRule(config, rate, applied);
  const double now = NAdamMomentum(config, applied), next = NAdamMomentum(config, applied + 1);
  rule.step_g = static_cast<float>(rate * (1 - now) / (1 - product));
  rule.step_m = static_cast<float>(rate * next / (1 - product * next));
  return rule;
}

ElementwiseRule SgdRule(const OptimizerConfig& config, double rate) {
  ElementwiseRule rule;
  rule.keep_m = static_cast<float>(config.momentum);
  rule.step_g = static_cast<float>(config.nesterov ? rate : 0);
  rule.step_m = static_cast<float>(config.nesterov ? rate * config.momentum : rate);
  return rule;
}

// The step of Muon; `gradient` is used up.
at::Tensor MuonStep(const OptimizerConfig& config, double rate, double scale, at::Tensor gradient, at::Tensor m) {
  const double mu = config.momentum;
  gradient.mul_(scale);
  m.mul_(mu).add_(gradient, 1 - mu);
  gradient.mul_(1 - mu).add_(m, mu);
  // Rows are outputs. For factors of the subspace out = rank.
  const auto out = static_cast<double>(gradient.size(0)), in = static_cast<double>(gradient.size(1));
  return NewtonSchulz(gradient).mul_(rate * std::sqrt(std::max(1.0, out / in)));
}

}  // namespace

StageOptimizer::StageOptimizer(const OptimizerConfig& config, const ModelConfig& model,
                               std::vector<ParameterInfo> parameters, at::Device device)
    : config_(config), model_(model), parameters_(std::move(parameters)) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  for (const ParameterInfo& info : parameters_) {
    m_.push_back(at::zeros(info.shape, options));
    const bool has_v = config_.kind != OptimizerKind::kSgd && !UsesMuon(info);
    v_.push_back(has_v ? at::zeros(info.shape, options) : at::Tensor());
    previous_.push_back(config_.keeps_previous_step() ? at::zeros(info.shape, options) : at::Tensor());
  }
}

bool StageOptimizer::UsesMuon(const ParameterInfo& info) const {
  return config_.kind == OptimizerKind::kMuon && info.role == ParameterRole::kMatrix;
}

void StageOptimizer::Update(uint64_t step, const std::vector<at::Tensor>& weights,
                            const std::vector<at::Tensor>& gradients, double scale, bool delayed, bool skip) {
  const at::NoGradGuard no_grad;
  if (skip) {
    for (size_t q = 0; q < parameters_.size(); ++q) gradients[q].copy_(weights[q]);
    return;
  }
  const bool feedback = delayed && config_.keeps_previous_step() && applied_ > 0;
  ++applied_;
  if (config_.kind == OptimizerKind::kNAdam) nadam_product_ *= NAdamMomentum(config_, static_cast<double>(applied_));
  const double rate = RateAt(config_, config_.learning_rate, step);
  const double muon_rate = RateAt(config_, config_.muon_learning_rate, step);
  for (size_t q = 0; q < parameters_.size(); ++q) {
    const ParameterInfo& info = parameters_[q];
    ApplyRule apply;
    apply.feedback = static_cast<float>(feedback ? config_.error_feedback : 0);
    if (UsesMuon(info)) {
      apply.keep_weight = static_cast<float>(1 - muon_rate * config_.muon_weight_decay);
      ApplyUpdate(apply, MuonStep(config_, muon_rate, scale, gradients[q], m_[q]), weights[q], gradients[q],
                  previous_[q]);
      continue;
    }
    // Decay shrinks by the plain rate, whatever the step of the parameter is scaled by.
    if (Decays(info.role)) apply.keep_weight = static_cast<float>(1 - rate * config_.weight_decay);
    ElementwiseRule rule = RuleFor(info, rate);
    rule.scale = static_cast<float>(scale);
    UpdateElementwise(rule, apply, weights[q], gradients[q], m_[q], v_[q], previous_[q]);
  }
}

ElementwiseRule StageOptimizer::RuleFor(const ParameterInfo& info, double rate) const {
  const auto applied = static_cast<double>(applied_);
  if (config_.kind == OptimizerKind::kSgd) return SgdRule(config_, rate);
  // An entry of Z moves the written row by eta sqrt(k) where one of W would move it by eta sqrt(d).
  if (info.in_subspace) rate *= std::sqrt(static_cast<double>(model_.width) / static_cast<double>(model_.rank));
  if (config_.kind == OptimizerKind::kNAdam) return NAdamRule(config_, rate, applied, nadam_product_);
  return AdamWRule(config_, rate, applied);
}

uint64_t StageOptimizer::applied_updates() const { return applied_; }
double StageOptimizer::nadam_product() const { return nadam_product_; }

std::vector<std::pair<std::string, at::Tensor>> StageOptimizer::StateOf(size_t parameter) const {
  std::vector<std::pair<std::string, at::Tensor>> state{{"m", m_[parameter]}};
  if (v_[parameter].defined()) state.emplace_back("v", v_[parameter]);
  if (previous_[parameter].defined()) state.emplace_back("u", previous_[parameter]);
  return state;
}

void StageOptimizer::SetApplied(uint64_t applied, double nadam_product) {
  applied_ = applied;
  nadam_product_ = nadam_product;
}

}  // namespace stagecoach
