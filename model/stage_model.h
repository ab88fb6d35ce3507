// The layers of one stage as a pure function of (parameters, input, index): a contiguous range of units of a
// decoder-only transformer. Holds no weights and no state that changes; the same object serves every version of the
// weights.
//
// Units: 0 embedding, 1..L blocks, L+1 final norm + head + loss. The tensor between units is (B*T) x columns fp32:
// the residual stream (dense) or its coordinates in the subspace (rank k; X = c U' + A[ids] is formed where a block
// reads it). All randomness comes from the counter RNG keyed by (seed, purpose, n, unit, site), so recompute gives
// equal bits.
//
// Threading: const after construction; calls are made by one compute thread.
// Errors: torch exceptions (c10::Error) pass through; the executor turns them into absl::Status.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "model/run_config.h"

namespace stagecoach {

// How an optimizer treats a parameter.
enum class ParameterRole {
  kEmbedding,  // token table, positions
  kMatrix,     // 2-D block weight: Muon where it is chosen, else AdamW with decay
  kHead,       // output matrix: AdamW with decay
  kVector,     // gains and biases: AdamW without decay
};

struct ParameterInfo {
  std::string name;  // "units.3.attention.q": independent of the cut
  uint32_t unit = 0;
  std::vector<int64_t> shape;
  ParameterRole role = ParameterRole::kMatrix;
  bool in_subspace = false;  // Z or E: its AdamW rate is scaled by sqrt(d/k)
  int64_t offset = 0;        // in floats, inside the stage's flat buffer; multiples of 16 (64 bytes)
  int64_t numel = 0;
};

class StageModel {
 public:
  // Units [first_unit, end_unit). `seed` is the run's.
  StageModel(const ModelConfig& config, uint64_t seed, uint32_t first_unit, uint32_t end_unit, at::Device device);
  ~StageModel();

  // Canonical order: by unit, then the order of use; independent of the cut.
  const std::vector<ParameterInfo>& parameters() const;
  int64_t flat_size() const;  // floats, padding included

  // Views of a flat fp32 buffer, one per parameter, as leaves that require grad if asked.
  std::vector<at::Tensor> Views(const at::Tensor& flat, bool requires_grad) const;

  // Writes the initial weights (counter RNG: the same for every cut and host). Padding becomes 0.
  void Initialize(const at::Tensor& flat) const;

  struct Batch {
    uint64_t n = 0;  // microbatch index: keys dropout. Evaluation items: training = false
    bool training = true;
    at::Tensor ids;     // int64 B x T inputs
    at::Tensor labels;  // int64 B x T (needed by the head unit only)
  };
  // Runs the stage. `input` is (B*T) x columns fp32 from the stage above; ignored by the stage that embeds.
  // Returns the (B*T) x columns output, or, if the head is in the stage, the mean loss over the tokens as a scalar
  // (fp32 tensor for autograd). `loss_sum` (may be null): the sum of the token losses in double, in index order.
  at::Tensor Forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input, const Batch& batch,
                     double* loss_sum) const;

  // Logits (T x V) for generation and tests: needs all units.
  at::Tensor Logits(const std::vector<at::Tensor>& parameters, const at::Tensor& ids) const;

  std::string BasisSha256() const;   // of U, empty without a subspace
  std::string AnchorSha256() const;  // of anchor rows 0..15, likewise

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Sets what must be equal everywhere before the first operation: threads, deterministic algorithms, MKL_CBWR.
void ConfigureTorch(int threads);
// Opens libtorch_cuda.so for "cuda" or "cuda:N". Call it before anything else of torch. Returns the text of what is
// missing, or an empty string.
std::string LoadCudaBackend();
std::string TorchVersion();
std::string TorchCpuCapability();

}  // namespace stagecoach
