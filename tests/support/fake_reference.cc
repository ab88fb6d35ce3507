#include "tests/support/fake_reference.h"

#include "absl/strings/string_view.h"
#include "common/clip_rule.h"
#include "common/sha256.h"
#include "worker/compute/fake_arithmetic.h"

namespace stagecoach {
namespace {

class Reference {
 public:
  explicit Reference(const RunConfig& config) : config_(config), units_(config.model.num_units()) {
    result_.moments.resize(units_);
    for (uint32_t u = 0; u < units_; ++u) result_.weights.push_back({fake::InitialWeights(config.seed, u)});
    for (uint32_t stage = 0; stage < config.num_stages(); ++stage) {
      for (uint32_t u = config.first_unit(stage); u < config.end_unit(stage); ++u) stage_of_unit_.push_back(stage);
      rules_.push_back(config.RuleOfStage(stage));
    }
  }

  FakeReferenceResult Run(uint64_t steps) {
    for (uint64_t step = 0; step < steps; ++step) {
      if (config_.Order().EvaluationDue(step)) Evaluate(step);
      Step(step);
    }
    if (config_.Order().EvaluationDue(steps)) Evaluate(steps);
    Sha256 all;
    for (uint32_t u = 0; u < units_; ++u) {
      const uint64_t& newest = result_.weights[u].back();
      result_.weights_sha256.push_back(Sha256Hex({reinterpret_cast<const char*>(&newest), sizeof(newest)}));
      all.Update(result_.weights_sha256.back());
    }
    result_.weight_hash = all.FinishHex();
    return std::move(result_);
  }

 private:
  std::vector<uint64_t> Weights(uint64_t n) const {
    std::vector<uint64_t> weights;
    for (uint32_t u = 0; u < units_; ++u) {
      weights.push_back(result_.weights[u][rules_[stage_of_unit_[u]].VersionOf(n)]);
    }
    return weights;
  }

  void Step(uint64_t step) {
    std::vector<uint64_t> sums(units_, 0);
    double loss = 0;
    for (uint64_t j = 0; j < config_.microbatches; ++j) loss += Microbatch(step * config_.microbatches + j, &sums);
    result_.losses.push_back(loss / config_.microbatches);
    Update(step, sums);
  }

  double Microbatch(uint64_t n, std::vector<uint64_t>* sums) {
    const std::vector<uint64_t> weights = Weights(n);
    Item item;
    item.n = config_.GlobalMicrobatch(n);
    std::vector<uint64_t> activations{fake::Tokens(config_.seed, item)};
    item.n = n;
    for (uint32_t u = 0; u < units_; ++u) activations.push_back(fake::UnitForward(activations.back(), weights[u]));
    uint64_t gradient = fake::LossGradient(activations.back(), item);
    for (uint32_t u = units_; u-- > 0;) {
      (*sums)[u] = fake::Accumulate((*sums)[u], fake::UnitGradient(activations[u], weights[u], gradient));
      gradient = fake::UnitBackward(activations[u], weights[u], gradient);
    }
    return fake::Loss(activations.back());
  }

  // The clip factor of the units [first, end).
  double Clip(const std::vector<uint64_t>& sums, uint32_t first, uint32_t end, double clip_norm, double* square_sum) {
    std::vector<double> norms;
    for (uint32_t u = first; u < end; ++u) norms.push_back(fake::SquareNorm(sums[u]));
    *square_sum = SumInOrder(norms);
    return config_.clip_none ? 1.0 : ClipFactor(*square_sum, clip_norm);
  }

  void Update(uint64_t step, const std::vector<uint64_t>& sums) {
    const uint32_t parts = config_.clip_per_stage ? config_.num_stages() : 1;
    for (uint32_t part = 0; part < parts; ++part) {
      const uint32_t first = config_.clip_per_stage ? config_.first_unit(part) : 0;
      const uint32_t end = config_.clip_per_stage ? config_.end_unit(part) : units_;
      const double norm = config_.clip_per_stage ? StageClipNorm(config_.clip_norm, parts) : config_.clip_norm;
      double square_sum = 0;
      const double clip = Clip(sums, first, end, norm, &square_sum);
      if (part == 0) {
        result_.clips.push_back(clip);
        result_.square_sums.push_back(square_sum);
      }
      for (uint32_t u = first; u < end; ++u) {
        result_.moments[u] = fake::Moment(result_.moments[u], sums[u], clip);
        result_.weights[u].push_back(fake::UpdatedWeights(result_.weights[u].back(), result_.moments[u], step));
      }
    }
  }

  void Evaluate(uint64_t steps_done) {
    // The version that the next microbatch uses; after the last step, the newest.
    double loss = 0;
    const bool is_last = steps_done == config_.total_steps;
    for (uint32_t e = 0; e < config_.evaluation_microbatches; ++e) {
      Item item{0, steps_done * config_.microbatches, true, e};
      uint64_t activation = fake::Tokens(config_.seed, item);
      const std::vector<uint64_t> weights = Weights(item.n);
      for (uint32_t u = 0; u < units_; ++u) {
        activation = fake::UnitForward(activation, is_last ? result_.weights[u].back() : weights[u]);
      }
      const double tokens = static_cast<double>(config_.sequences) * config_.tokens;
      loss += fake::Loss(activation) * tokens;
    }
    const double all_tokens = static_cast<double>(config_.evaluation_microbatches) * config_.sequences * config_.tokens;
    result_.evaluations.push_back({steps_done, loss / all_tokens});
  }

  const RunConfig& config_;
  const uint32_t units_;
  std::vector<uint32_t> stage_of_unit_;
  std::vector<VersionRule> rules_;
  FakeReferenceResult result_;
};

}  // namespace

FakeReferenceResult RunFakeReference(const RunConfig& config, uint64_t steps) { return Reference(config).Run(steps); }

}  // namespace stagecoach
