#include "model/stage_model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "model/counter_values.h"
#include "model/cross_entropy.h"
#include "model/decoder_block.h"
#include "model/linear.h"
#include "model/parameter_layout.h"
#include "model/subspace.h"
#include "model/token_embedding.h"

namespace stagecoach {

struct StageModel::Impl {
  ModelConfig config;
  uint64_t seed;
  uint32_t first_unit, end_unit;
  at::Device device;
  std::vector<LayoutEntry> layout;
  std::vector<ParameterInfo> parameters;
  int64_t flat_size = 0;
  std::optional<RotaryTable> rotary;
  std::optional<Subspace> subspace;

  uint32_t head_unit() const { return config.num_units() - 1; }
  bool has_head() const { return end_unit == config.num_units(); }

  // The stream behind the last block, with X formed if a head follows.
  at::Tensor RunUnits(ParameterCursor* cursor, const at::Tensor& input, const Batch& batch) const;
};

StageModel::StageModel(const ModelConfig& config, uint64_t seed, uint32_t first_unit, uint32_t end_unit,
                       at::Device device)
    : impl_(new Impl{config,
                     seed,
                     first_unit,
                     end_unit,
                     device,
                     ParameterLayout(config, first_unit, end_unit),
                     {},
                     0,
                     std::nullopt,
                     std::nullopt}) {
  TORCH_CHECK(first_unit < end_unit && end_unit <= config.num_units(), "units [", first_unit, ", ", end_unit,
              ") are not a range of a model of ", config.num_units());
  TORCH_CHECK(first_unit == 0 || config.CutAllowed(first_unit), "no cut may lie in front of unit ", first_unit);
  TORCH_CHECK(end_unit == config.num_units() || config.CutAllowed(end_unit), "no cut may lie in front of unit ",
              end_unit);
  for (const LayoutEntry& entry : impl_->layout) impl_->parameters.push_back(entry.info);
  const ParameterInfo& last = impl_->parameters.back();
  impl_->flat_size = (last.offset + last.numel + 15) / 16 * 16;
  if (config.architecture == Architecture::kLlama) {
    impl_->rotary.emplace(config.max_tokens, config.width / config.heads, config.rope_theta, device);
  }
  if (config.compression == Compression::kSubspace) impl_->subspace.emplace(config, seed, device);
}

StageModel::~StageModel() = default;

const std::vector<ParameterInfo>& StageModel::parameters() const { return impl_->parameters; }
int64_t StageModel::flat_size() const { return impl_->flat_size; }

std::vector<at::Tensor> StageModel::Views(const at::Tensor& flat, bool requires_grad) const {
  const at::Tensor detached = flat.detach();
  std::vector<at::Tensor> views;
  views.reserve(impl_->parameters.size());
  for (const ParameterInfo& info : impl_->parameters) {
    at::Tensor view = detached.narrow(0, info.offset, info.numel).view(info.shape).detach();
    view.set_requires_grad(requires_grad);
    views.push_back(std::move(view));
  }
  return views;
}

void StageModel::Initialize(const at::Tensor& flat) const {
  at::Tensor host = at::zeros({impl_->flat_size}, at::kFloat);
  float* values = host.mutable_data_ptr<float>();
  for (const LayoutEntry& entry : impl_->layout) {
    float* first = values + entry.info.offset;
    if (entry.initial_deviation > 0) {
      FillGaussian(CounterRng(impl_->seed, RngPurpose::kInit, entry.rng_stream), entry.initial_deviation, first,
                   entry.info.numel);
    } else {
      std::fill(first, first + entry.info.numel, static_cast<float>(entry.initial_value));
    }
  }
  at::Tensor target = flat.detach();
  target.copy_(host);
}

at::Tensor StageModel::Impl::RunUnits(ParameterCursor* cursor, const at::Tensor& input, const Batch& batch) const {
  BlockContext context{config,
                       rotary ? &*rotary : nullptr,
                       subspace ? &*subspace : nullptr,
                       at::Tensor(),
                       batch.ids.size(0),
                       batch.ids.size(1),
                       seed,
                       batch.n,
                       batch.training};
  at::Tensor stream = input;
  if (first_unit == 0) {
    stream = EmbedTokens(cursor->Take(), batch.ids);
    if (config.architecture == Architecture::kGpt2 && !subspace) {
      const at::Tensor positions = cursor->Take().narrow(0, 0, context.tokens);
      stream = (stream.view({context.batch, context.tokens, config.width}) + positions).view({-1, config.width});
    }
  }
  if (subspace) context.fixed_rows = subspace->FixedRows(batch.ids, stream.scalar_type());
  bool is_coordinates = subspace.has_value();
  for (uint32_t unit = std::max(first_unit, 1u); unit < std::min(end_unit, head_unit()); ++unit) {
    const bool constrained = IsConstrainedBlock(config, unit);
    // The tail reads and writes the d-wide stream, which no boundary follows.
    if (is_coordinates && !constrained) {
      stream = subspace->Materialise(stream, context.fixed_rows);
      is_coordinates = false;
    }
    stream = RunBlock(context, cursor, unit, constrained, stream);
  }
  if (is_coordinates && has_head()) stream = subspace->Materialise(stream, context.fixed_rows);
  return stream;
}

at::Tensor StageModel::Forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input, const Batch& batch,
                               double* loss_sum) const {
  ParameterCursor cursor(impl_->config, parameters);
  const at::Tensor stream = impl_->RunUnits(&cursor, input, batch);
  if (!impl_->has_head()) return stream;
  const at::Tensor hidden = GainNorm(impl_->config, &cursor, stream);
  return HeadCrossEntropy(hidden, cursor.Take(), batch.labels, impl_->config.compute, loss_sum);
}

at::Tensor StageModel::Logits(const std::vector<at::Tensor>& parameters, const at::Tensor& ids) const {
  TORCH_CHECK(impl_->first_unit == 0 && impl_->has_head(), "logits need all units of the model");
  const at::NoGradGuard no_grad;
  Batch batch;
  batch.training = false;
  batch.ids = ids;
  ParameterCursor cursor(impl_->config, parameters);
  const at::Tensor stream = impl_->RunUnits(&cursor, at::Tensor(), batch);
  const at::Tensor hidden = GainNorm(impl_->config, &cursor, stream);
  return Linear(hidden, cursor.Take(), at::Tensor(), impl_->config.compute);
}

std::string StageModel::BasisSha256() const { return impl_->subspace ? impl_->subspace->BasisSha256() : ""; }
std::string StageModel::AnchorSha256() const { return impl_->subspace ? impl_->subspace->AnchorSha256() : ""; }

}  // namespace stagecoach
