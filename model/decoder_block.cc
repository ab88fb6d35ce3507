#include "model/decoder_block.h"

#include "model/counter_values.h"
#include "model/linear.h"
#include "model/row_norm.h"

namespace stagecoach {
namespace {

// A mask's blocks start at (4 unit + site) * 2^40: no microbatch has that many numbers in one place.
enum class DropoutSite : uint64_t { kAttention = 0, kFeedforward = 1 };
constexpr int kSiteShift = 40;

at::Tensor Dropout(const BlockContext& context, uint32_t unit, DropoutSite site, const at::Tensor& z) {
  if (!context.training || context.config.dropout <= 0) return z;
  at::Tensor mask = at::empty(z.sizes(), at::kFloat);
  const CounterRng rng(context.seed, RngPurpose::kDropout, context.n);
  FillDropoutMask(rng, (uint64_t{unit} * 4 + static_cast<uint64_t>(site)) << kSiteShift, context.config.dropout,
                  mask.mutable_data_ptr<float>(), mask.numel());
  return z * mask.to(z.options());
}

// The sub-layer's output z onto the stream. Dropout acts on z, in coordinates: a d-wide mask would leave the subspace.
at::Tensor AddToStream(const BlockContext& context, uint32_t unit, DropoutSite site, const at::Tensor& stream,
                       const at::Tensor& z) {
  const at::Tensor kept = Dropout(context, unit, site, z);
  if (context.config.norm == NormPlacement::kPre) return stream + kept;
  return AddRowNorm(stream, kept, static_cast<double>(context.config.width), context.config.norm_epsilon);
}

at::Tensor TakeLinear(const ModelConfig& config, ParameterCursor* cursor, const at::Tensor& x) {
  const at::Tensor& weight = cursor->Take();
  return Linear(x, weight, cursor->TakeBias(), config.compute);
}

at::Tensor Attention(const BlockContext& context, ParameterCursor* cursor, const at::Tensor& x) {
  const ModelConfig& config = context.config;
  const int64_t head_width = config.width / config.heads;
  at::Tensor q = TakeLinear(config, cursor, x);
  at::Tensor k = TakeLinear(config, cursor, x);
  at::Tensor v = TakeLinear(config, cursor, x);
  if (context.rotary != nullptr) {
    q = context.rotary->Rotate(q, context.tokens, head_width);
    k = context.rotary->Rotate(k, context.tokens, head_width);
  }
  const bool bf16 = RoundsToBf16(config.compute, x);
  if (bf16) {
    q = q.to(at::kBFloat16);
    k = k.to(at::kBFloat16);
    v = v.to(at::kBFloat16);
  }
  at::Tensor mixed =
      CausalAttention(q, k, v, {context.batch, context.tokens, config.heads, config.kv_heads, head_width});
  if (bf16) mixed = mixed.to(at::kFloat);
  return TakeLinear(config, cursor, mixed);
}

at::Tensor Feedforward(const BlockContext& context, ParameterCursor* cursor, const at::Tensor& x) {
  const ModelConfig& config = context.config;
  at::Tensor hidden;
  if (config.architecture == Architecture::kLlama) {
    const at::Tensor gate = TakeLinear(config, cursor, x);
    hidden = at::silu(gate) * TakeLinear(config, cursor, x);
  } else {
    hidden = at::gelu(TakeLinear(config, cursor, x), "tanh");
  }
  return TakeLinear(config, cursor, hidden);
}

}  // namespace

at::Tensor GainNorm(const ModelConfig& config, ParameterCursor* cursor, const at::Tensor& x) {
  const at::Tensor& gain = cursor->Take();
  if (config.architecture == Architecture::kLlama) return RmsNorm(x, gain, config.norm_epsilon);
  return at::layer_norm(x, {config.width}, gain, cursor->TakeBias(), config.norm_epsilon);
}

at::Tensor RunBlock(const BlockContext& context, ParameterCursor* cursor, uint32_t unit, bool constrained,
                    const at::Tensor& stream_in) {
  const auto read = [&](const at::Tensor& stream) {
    const at::Tensor x = constrained ? context.subspace->Materialise(stream, context.fixed_rows) : stream;
    return context.config.norm == NormPlacement::kPre ? GainNorm(context.config, cursor, x) : x;
  };
  const at::Tensor stream =
      AddToStream(context, unit, DropoutSite::kAttention, stream_in, Attention(context, cursor, read(stream_in)));
  return AddToStream(context, unit, DropoutSite::kFeedforward, stream, Feedforward(context, cursor, read(stream)));
}

}  // namespace stagecoach
