#include "model/parameter_layout.h"

#include <cmath>
#include <string>
#include <utility>

namespace stagecoach {
namespace {

constexpr double kDeviation = 0.02;  // GPT-2's, kept by nearly all of its successors
constexpr int64_t kAlignment = 16;   // floats: 64 bytes, a cache line and an AVX-512 register

class LayoutBuilder {
 public:
  explicit LayoutBuilder(const ModelConfig& config) : config_(config) {}

  std::vector<LayoutEntry> Take() { return std::move(entries_); }

  void Embedding() {
    Begin(0);
    const bool subspace = config_.compression == Compression::kSubspace;
    Add("tokens", {config_.vocabulary, config_.boundary_columns()}, ParameterRole::kEmbedding, kDeviation, subspace);
    // With a subspace positions are fixed rows that every stage adds by itself (a trained table would leave it).
    if (config_.architecture == Architecture::kGpt2 && !subspace) {
      Add("positions", {config_.max_tokens, config_.width}, ParameterRole::kEmbedding, kDeviation);
    }
  }

  void Block(uint32_t unit) {
    Begin(unit);
    const int64_t d = config_.width, head = d / config_.heads, kv = head * config_.kv_heads;
    const bool constrained = IsConstrainedBlock(config_, unit);
    const int64_t written = constrained ? config_.rank : d;
    // Output projections are smaller by sqrt(2 layers); Z's entries larger by sqrt(d/k), since those of Z U' have
    // variance k/d of Z's.
    const double output = kDeviation / std::sqrt(2.0 * static_cast<double>(config_.layers)) *
                          (constrained ? std::sqrt(static_cast<double>(d) / static_cast<double>(written)) : 1.0);
    const bool pre = config_.norm == NormPlacement::kPre;
    if (pre) Norm("attention_norm");
    Linear("attention.q", d, d, kDeviation);
    Linear("attention.k", kv, d, kDeviation);
    Linear("attention.v", kv, d, kDeviation);
    Linear("attention.o", written, d, output, constrained);
    if (pre) Norm("feedforward_norm");
    if (config_.architecture == Architecture::kLlama) Linear("feedforward.gate", config_.feedforward, d, kDeviation);
    Linear("feedforward.up", config_.feedforward, d, kDeviation);
    Linear("feedforward.down", written, config_.feedforward, output, constrained);
  }

  void Head() {
    Begin(config_.num_units() - 1);
    Norm("norm");
    Add("head", {config_.vocabulary, config_.width}, ParameterRole::kHead, kDeviation);
  }

 private:
  void Begin(uint32_t unit) {
    unit_ = unit;
    index_ = 0;
  }

  void Add(const std::string& name, std::vector<int64_t> shape, ParameterRole role, double deviation,
           bool in_subspace = false, double value = 0) {
    LayoutEntry entry;
    entry.info.name = "units." + std::to_string(unit_) + "." + name;
    entry.info.unit = unit_;
    entry.info.role = role;
    entry.info.in_subspace = in_subspace;
    entry.info.offset = offset_;
    entry.info.numel = 1;
    for (const int64_t size : shape) entry.info.numel *= size;
    entry.info.shape = std::move(shape);
    entry.initial_value = value;
    entry.initial_deviation = deviation;
    entry.rng_stream = (uint64_t{unit_} << 8) | index_++;  // a unit has fewer than 20 parameters
    offset_ += (entry.info.numel + kAlignment - 1) / kAlignment * kAlignment;
    entries_.push_back(std::move(entry));
  }

  // GPT-2 has biases everywhere; those of constrained writers live in R^k like their output.
  void Linear(const std::string& name, int64_t out, int64_t in, double deviation, bool in_subspace = false) {
    Add(name, {out, in}, ParameterRole::kMatrix, deviation, in_subspace);
    if (config_.architecture == Architecture::kGpt2) Add(name + "_bias", {out}, ParameterRole::kVector, 0);
  }

  void Norm(const std::string& name) {
    Add(name + ".gain", {config_.width}, ParameterRole::kVector, 0, false, 1);
    if (config_.architecture == Architecture::kGpt2) Add(name + ".bias", {config_.width}, ParameterRole::kVector, 0);
  }

  const ModelConfig& config_;
  std::vector<LayoutEntry> entries_;
  uint32_t unit_ = 0;
  uint32_t index_ = 0;
  int64_t offset_ = 0;
};

}  // namespace

std::vector<LayoutEntry> ParameterLayout(const ModelConfig& config, uint32_t first_unit, uint32_t end_unit) {
  LayoutBuilder builder(config);
  for (uint32_t unit = first_unit; unit < end_unit; ++unit) {
    if (unit == 0) {
      builder.Embedding();
    } else if (unit + 1 == config.num_units()) {
      builder.Head();
    } else {
      builder.Block(unit);
    }
  }
  return builder.Take();
}

}  // namespace stagecoach
