#include "model/oracle.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "common/clip_rule.h"
#include "common/sha256.h"
#include "model/oracle_rounds.h"
#include "model/packed_parameters.h"
#include "model/stage_model.h"
#include "model/stage_optimizer.h"
#include "model/tensor_hash.h"

namespace stagecoach {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tensor after its way over a boundary: decoded again, or marked as not finite.
struct Crossed {
  at::Tensor values;
  bool nonfinite = false;
};

Crossed CrossBoundary(WireFormat format, const at::Tensor& values, const StochasticRounding* rounding) {
  const at::Tensor from = values.detach().contiguous();
  const auto rows = static_cast<uint32_t>(from.size(0)), columns = static_cast<uint32_t>(from.size(1));
  std::vector<uint8_t> bytes(EncodedBytes(format, rows, columns));
  Crossed crossed{at::empty_like(from), false};
  const auto count = static_cast<size_t>(from.numel());
  crossed.nonfinite =
      !Encode(format, rows, columns, {from.const_data_ptr<float>(), count}, rounding, absl::MakeSpan(bytes));
  crossed.nonfinite |= !Decode(format, rows, columns, bytes, {crossed.values.mutable_data_ptr<float>(), count});
  return crossed;
}

// One stage: its layers, its optimizer, the versions of its weights and the gradient sum of the current step.
struct Stage {
  StageModel model;
  StageOptimizer optimizer;
  VersionRule rule;
  std::map<uint64_t, at::Tensor> versions;  // flat buffers
  at::Tensor gradient_sum;
  bool saw_nonfinite = false;  // in the current step

  Stage(const RunConfig& config, uint32_t index)
      : model(config.model, config.seed, config.first_unit(index), config.end_unit(index), at::kCPU),
        optimizer(config.optimizer, config.model, model.parameters(), at::kCPU),
        rule(config.RuleOfStage(index)) {
    at::Tensor flat = at::empty({model.flat_size()}, at::kFloat);
    model.Initialize(flat);
    versions[0] = flat;
    BeginStep();
  }

  void BeginStep() {
    gradient_sum = at::zeros({model.flat_size()}, at::kFloat);
    saw_nonfinite = false;
  }

  const at::Tensor& Newest() const { return versions.rbegin()->second; }
};

// Stages of the reference are those of all plans of the run together: at a cut that a plan does not have nothing is
// lost, because fp32 crosses as it is.
RunConfig WithAllCuts(const RunConfig& config) {
  std::set<uint32_t> cuts(config.cuts.begin(), config.cuts.end());
  for (const EarlierCuts& earlier : config.earlier_cuts) cuts.insert(earlier.cuts.begin(), earlier.cuts.end());
  RunConfig all = config;
  all.cuts.assign(cuts.begin(), cuts.end());
  return all;
}

class Oracle {
 public:
  Oracle(const RunConfig& config, const OracleBatches& batches, const OracleOptions& options)
      : newest_(config), config_(WithAllCuts(config)), batches_(batches), options_(options) {
    for (uint32_t i = 0; i < config_.num_stages(); ++i) stages_.push_back(std::make_unique<Stage>(config_, i));
  }

  // Makes W^(step+1).
  void Train(uint64_t step) {
    double loss = 0;
    TakeUpPlan(step);
    for (auto& stage : stages_) stage->BeginStep();
    for (uint32_t j = 0; j < config_.microbatches; ++j) loss += TrainMicrobatch(step * config_.microbatches + j);
    result_.losses.push_back(loss / config_.microbatches);
    Update(step);
  }

  void EvaluateIfDue(uint64_t steps_done) {
    if (config_.Order().EvaluationDue(steps_done)) Evaluate(steps_done);
  }

  OracleResult Finish(uint64_t steps) {
    Describe(steps);
    return std::move(result_);
  }

  // The newest weights of all stages, as clusters average them.
  std::vector<float> Packed() const {
    std::vector<float> packed;
    for (const auto& stage : stages_) PackParameters(stage->model.parameters(), stage->Newest(), &packed);
    return packed;
  }

  void SetPacked(absl::Span<const float> packed) {
    for (const auto& stage : stages_) {
      packed.remove_prefix(UnpackParameters(stage->model.parameters(), packed, stage->Newest()));
    }
  }

  std::vector<uint64_t> UnitSizes() const {
    std::vector<uint64_t> sizes;
    for (const auto& stage : stages_) {
      const std::vector<uint64_t> own = UnitParameters(stage->model.parameters());
      sizes.insert(sizes.end(), own.begin(), own.end());
    }
    return sizes;
  }

 private:
  // Codecs of the plan that step has. An evaluation behind a step has them too.
  void TakeUpPlan(uint64_t step) {
    const std::vector<uint32_t>* cuts = &newest_.cuts;
    const std::vector<WireFormat>* codecs = &newest_.codecs;
    for (auto earlier = newest_.earlier_cuts.rbegin(); earlier != newest_.earlier_cuts.rend(); ++earlier) {
      if (step < earlier->end_step) std::tie(cuts, codecs) = std::make_pair(&earlier->cuts, &earlier->codecs);
    }
    codecs_.clear();
    for (const uint32_t cut : config_.cuts) {
      const auto found = std::find(cuts->begin(), cuts->end(), cut);
      codecs_.push_back(found == cuts->end() ? WireFormat::kFp32
                                             : (*codecs)[static_cast<size_t>(found - cuts->begin())]);
    }
  }

  StageModel::Batch Batch(uint64_t index, bool evaluation) const {
    StageModel::Batch batch;
    batch.n = evaluation ? index : config_.GlobalMicrobatch(index);
    batch.training = !evaluation;
    batch.ids = at::empty({config_.sequences, config_.tokens}, at::kLong);
    batch.labels = at::empty_like(batch.ids);
    const auto count = static_cast<size_t>(batch.ids.numel());
    batches_(batch.n, evaluation, {batch.ids.mutable_data_ptr<int64_t>(), count},
             {batch.labels.mutable_data_ptr<int64_t>(), count});
    return batch;
  }

  bool Injected(uint64_t n, uint32_t stage) const {
    return options_.inject_nan && options_.inject_nan->n == n && options_.inject_nan->stage == stage;
  }

  // Forward and backward of microbatch n through all stages; gradients go onto the sums. Returns its loss.
  double TrainMicrobatch(uint64_t n) {
    const StageModel::Batch batch = Batch(n, /*evaluation=*/false);
    const size_t last = stages_.size() - 1;
    std::vector<at::Tensor> inputs(stages_.size()), outputs(stages_.size());
    std::vector<std::vector<at::Tensor>> weights(stages_.size());
    double loss = 0;
    for (uint32_t i = 0; i <= last; ++i) {
      Stage& stage = *stages_[i];
      weights[i] = stage.model.Views(stage.versions.at(stage.rule.VersionOf(n)), /*requires_grad=*/true);
      outputs[i] = stage.model.Forward(weights[i], inputs[i], batch, &loss);
      if (Injected(n, i)) outputs[i] = outputs[i] * kNan;
      if (i == last) break;
      Crossed crossed = CrossBoundary(codecs_[i], outputs[i], nullptr);
      if (crossed.nonfinite) return MarkNonfinite();  // nothing below or above can use this microbatch
      inputs[i + 1] = crossed.values.set_requires_grad(true);
    }
    const double mean = Injected(n, static_cast<uint32_t>(last)) ? kNan : loss / static_cast<double>(batch.ids.numel());
    if (!std::isfinite(mean)) {
      MarkNonfinite();
      return mean;
    }
    Backpropagate(n, weights, inputs, outputs);
    return mean;
  }

  // A frame that is not finite marks every stage that it reaches, and each marks its neighbours by its own frames.
  double MarkNonfinite() {
    for (auto& stage : stages_) stage->saw_nonfinite = true;
    return kNan;
  }

  void Backpropagate(uint64_t n, const std::vector<std::vector<at::Tensor>>& weights,
                     const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
    at::Tensor upper;  // gradient of the loss with respect to the stage's output; undefined: the loss itself
    for (size_t i = stages_.size(); i-- > 0;) {
      std::vector<at::Tensor> with_respect_to = weights[i];
      if (i > 0) with_respect_to.push_back(inputs[i]);
      const std::vector<at::Tensor> gradients =
          torch::autograd::grad({outputs[i]}, with_respect_to, {upper}, /*retain_graph=*/false);
      const std::vector<at::Tensor> sums = stages_[i]->model.Views(stages_[i]->gradient_sum, false);
      for (size_t q = 0; q < sums.size(); ++q) sums[q].add_(gradients[q]);
      if (i == 0) break;
      const StochasticRounding rounding{config_.seed, config_.GlobalMicrobatch(n), config_.cuts[i - 1]};
      Crossed crossed = CrossBoundary(codecs_[i - 1], gradients.back(), &rounding);
      if (crossed.nonfinite) {
        for (size_t above = 0; above <= i; ++above) stages_[above]->saw_nonfinite = true;
        break;
      }
      upper = crossed.values;
    }
  }

  struct StageDecision {
    double clip = 1;
    bool skip = false;
  };

  // c_t of every stage from its S (or everybody's), in canonical order of parameters.
  std::vector<StageDecision> Decide(const std::vector<std::vector<double>>& norms, double square_sum) const {
    std::vector<StageDecision> decisions(stages_.size());
    for (size_t i = 0; i < stages_.size(); ++i) {
      const double s = config_.clip_per_stage ? SumInOrder(norms[i]) : square_sum;
      decisions[i].skip = !std::isfinite(s);
      if (decisions[i].skip || config_.clip_none) continue;
      decisions[i].clip = ClipFactor(
          s, config_.clip_per_stage ? StageClipNorm(config_.clip_norm, config_.num_stages()) : config_.clip_norm);
    }
    return decisions;
  }

  void Update(uint64_t step) {
    const double one_over_m = 1.0 / config_.microbatches;
    std::vector<std::vector<double>> norms;
    std::vector<double> all;
    for (auto& stage : stages_) {
      norms.push_back(StageOptimizer::SquareNorms(stage->model.Views(stage->gradient_sum, false), one_over_m));
      if (stage->saw_nonfinite) norms.back()[0] = kNan;
      all.insert(all.end(), norms.back().begin(), norms.back().end());
    }
    result_.square_sums.push_back(SumInOrder(all));
    const std::vector<StageDecision> decisions = Decide(norms, result_.square_sums.back());
    std::vector<double> clips;
    bool skipped = false;
    for (size_t i = 0; i < stages_.size(); ++i) {
      Stage& stage = *stages_[i];
      const bool delayed = stage.rule.JOf(step) > 0;
      stage.optimizer.Update(step, stage.model.Views(stage.Newest(), false),
                             stage.model.Views(stage.gradient_sum, false), decisions[i].clip / config_.microbatches,
                             delayed, decisions[i].skip);
      stage.versions[step + 1] = stage.gradient_sum;  // now W^(step+1)
      const uint64_t oldest = stage.rule.VersionOf((step + 1) * config_.microbatches);
      stage.versions.erase(stage.versions.begin(), stage.versions.lower_bound(oldest));
      if (i == 0 || config_.clip_per_stage) clips.push_back(decisions[i].clip);
      skipped |= decisions[i].skip;
    }
    result_.clips.push_back(std::move(clips));
    if (skipped) result_.skipped_steps.push_back(step);
  }

  // Evaluation frames stand between two steps: they use what the next microbatch uses, after the last step the newest.
  void Evaluate(uint64_t steps_done) {
    const at::NoGradGuard no_grad;
    double sum = 0, tokens = 0;
    for (uint32_t e = 0; e < config_.evaluation_microbatches; ++e) {
      const StageModel::Batch batch = Batch(e, /*evaluation=*/true);
      at::Tensor stream;
      double loss = 0;
      bool nonfinite = false;
      for (size_t i = 0; i < stages_.size() && !nonfinite; ++i) {
        const Stage& stage = *stages_[i];
        const uint64_t version =
            steps_done == config_.total_steps ? steps_done : stage.rule.VersionOf(steps_done * config_.microbatches);
        stream = stage.model.Forward(stage.model.Views(stage.versions.at(version), false), stream, batch, &loss);
        if (i + 1 == stages_.size()) break;
        const Crossed crossed = CrossBoundary(codecs_[i], stream, nullptr);
        stream = crossed.values;
        nonfinite = crossed.nonfinite;
      }
      sum += nonfinite ? kNan : loss;
      tokens += static_cast<double>(batch.ids.numel());
    }
    if (tokens > 0) result_.evaluations.push_back({steps_done, sum / tokens});
  }

  static std::string Bytes(const at::Tensor& tensor) {
    const at::Tensor host = tensor.contiguous();
    return std::string(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }

  void Describe(uint64_t steps) {
    std::string hashes;
    for (const auto& stage : stages_) {
      const std::vector<ParameterInfo>& parameters = stage->model.parameters();
      for (const auto& [version, flat] : stage->versions) {
        const std::vector<at::Tensor> views = stage->model.Views(flat, false);
        const std::string prefix = "w." + std::to_string(steps - version) + ".";
        for (size_t q = 0; q < views.size(); ++q) result_.state[prefix + parameters[q].name] = Bytes(views[q]);
      }
      const std::vector<at::Tensor> newest = stage->model.Views(stage->Newest(), false);
      std::map<uint32_t, std::vector<at::Tensor>> units;
      for (size_t q = 0; q < newest.size(); ++q) {
        units[parameters[q].unit].push_back(newest[q]);
        for (const auto& [kind, tensor] : stage->optimizer.StateOf(q)) {
          result_.state[kind + "." + parameters[q].name] = Bytes(tensor);
        }
      }
      for (const auto& [unit, tensors] : units) result_.weights_sha256.push_back(TensorsSha256(tensors));
    }
    for (const std::string& hash : result_.weights_sha256) hashes += hash;
    result_.weight_hash = Sha256Hex(hashes);
  }

  const RunConfig& newest_;
  const RunConfig config_;          // with the cuts of all plans
  std::vector<WireFormat> codecs_;  // one per cut, of the plan in effect
  const OracleBatches& batches_;
  const OracleOptions& options_;
  std::vector<std::unique_ptr<Stage>> stages_;
  OracleResult result_;
};

// The clusters' steps beside each other, and what their rounds do to the weights.
class ClusterOracle {
 public:
  ClusterOracle(const std::vector<RunConfig>& configs, const OracleBatches& batches, const OracleOptions& options)
      : config_(configs[0]), end_(options.stop_after == 0 ? config_.total_steps : options.stop_after) {
    for (const RunConfig& config : configs) clusters_.push_back(std::make_unique<Oracle>(config, batches, options));
    if (config_.averaging.rounds.enabled()) rounds_.emplace(configs, clusters_[0]->Packed(), clusters_[0]->UnitSizes());
  }

  std::vector<OracleResult> Run() {
    for (uint64_t version = 1; version <= end_; ++version) {
      for (auto& cluster : clusters_) cluster->Train(version - 1);
      if (rounds_) Round(version);
      for (auto& cluster : clusters_) cluster->EvaluateIfDue(version);
    }
    std::vector<OracleResult> results;
    for (auto& cluster : clusters_) results.push_back(cluster->Finish(end_));
    return results;
  }

 private:
  struct Open {
    uint64_t version = 0;
    std::vector<std::vector<float>> pinned;  // of each cluster
    std::vector<float> theta;
  };

  // `version` has just been made everywhere.
  void Round(uint64_t version) {
    const RoundSchedule& schedule = config_.averaging.rounds;
    if (open_ && schedule.EntersAt(open_->version, config_.total_steps) == version) Enter(/*replace=*/false);
    const bool last = version == config_.total_steps;
    if (!last && !schedule.IsRound(version)) return;
    Begin(version);
    if (last || schedule.delay_steps == 0) Enter(/*replace=*/true);
  }

  void Begin(uint64_t version) {
    const std::vector<StageCuts>* cuts = &config_.cluster_cuts;
    for (auto earlier = config_.earlier_cuts.rbegin(); earlier != config_.earlier_cuts.rend(); ++earlier) {
      if (version <= earlier->end_step) cuts = &earlier->cluster_cuts;
    }
    rounds_->TakeUpCuts(*cuts);
    open_.emplace();
    open_->version = version;
    for (auto& cluster : clusters_) open_->pinned.push_back(cluster->Packed());
    open_->theta = rounds_->Average(open_->pinned);
  }

  void Enter(bool replace) {
    for (size_t c = 0; c < clusters_.size(); ++c) {
      std::vector<float> weights = clusters_[c]->Packed();
      OracleRounds::Enter(open_->theta, open_->pinned[c], replace, &weights);
      clusters_[c]->SetPacked(weights);
    }
    open_.reset();
  }

  const RunConfig& config_;
  const uint64_t end_;
  std::vector<std::unique_ptr<Oracle>> clusters_;
  std::optional<OracleRounds> rounds_;
  std::optional<Open> open_;
};

}  // namespace

OracleResult RunOracle(const RunConfig& config, const OracleBatches& batches, const OracleOptions& options) {
  return RunClusterOracle({config}, batches, options)[0];
}

std::vector<OracleResult> RunClusterOracle(const std::vector<RunConfig>& configs, const OracleBatches& batches,
                                           const OracleOptions& options) {
  return ClusterOracle(configs, batches, options).Run();
}

}  // namespace stagecoach
