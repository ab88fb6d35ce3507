// Tokens of a run: shards on disk, and which window of them a microbatch reads.
//
// Formats: a folder made by `stagecoach-model prepare` (dataset.json + shard-NNNNN.bin), a nanoGPT .bin (uint16 without
// a header), an llm.c .bin (header of 256 int32, magic 20240520, version 1, token count; then uint16). Files are
// mapped.
//
// Window w = tokens [w T, w T + T], labels shifted by one. Position p -> epoch e = p / W, window perm_e(p mod W): a
// keyed permutation in place (Feistel network, 6 rounds), so any worker finds any window in O(1). p = (t M + j) B + b.
//
// Threading: const after Open. Errors: NOT_FOUND, INVALID_ARGUMENT with the file and what is wrong with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace stagecoach {

struct TokenShard {
  std::string path;  // absolute
  std::string sha256;
  uint64_t tokens = 0;
};

class TokenDataset {
 public:
  // path: as DataSpec.path. verify: recompute the hashes and compare them with dataset.json.
  static absl::StatusOr<TokenDataset> Open(const std::string& path, bool verify);
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;
  ~TokenDataset();

  const std::vector<TokenShard>& shards() const;
  uint64_t num_tokens() const;
  uint32_t vocabulary() const;                // ids are below this
  const std::string& tokenizer() const;       // "bytes", "sentencepiece" (with tokenizer_path), "unknown"
  const std::string& tokenizer_path() const;  // file inside the folder, or empty

  // Copies tokens [first, first + out.size()) . Precondition: in range.
  void Read(uint64_t first, absl::Span<int64_t> out) const;

 private:
  struct Impl;
  explicit TokenDataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// perm_e: position within an epoch -> window, both in [0, windows).
uint64_t PermuteWindow(uint64_t seed, uint64_t epoch, uint64_t windows, uint64_t position);

struct WindowSplit {
  uint64_t training = 0, evaluation = 0;
};
// W = floor((tokens - 1)/T) windows; the last max(1, round(W * fraction)) are for evaluation. INVALID_ARGUMENT if there
// are fewer than 2.
absl::StatusOr<WindowSplit> SplitWindows(uint64_t num_tokens, uint64_t sequence_tokens, double validation_fraction);

// Fills B x T ids and labels of training microbatch n (B = sequences, T = tokens).
void ReadMicrobatch(const TokenDataset& data, uint64_t seed, uint64_t training_windows, uint64_t n, uint32_t sequences,
                    uint32_t tokens, absl::Span<int64_t> ids, absl::Span<int64_t> labels);
// The same for evaluation microbatch e: window training_windows + (e B + b) mod evaluation_windows, always the same.
void ReadEvaluationMicrobatch(const TokenDataset& data, uint64_t training_windows, uint64_t evaluation_windows,
                              uint64_t e, uint32_t sequences, uint32_t tokens, absl::Span<int64_t> ids,
                              absl::Span<int64_t> labels);

// Mean nats per token, on evaluation microbatches 0..microbatches-1, of a bigram model with add-one-like smoothing
// counted on the training windows (interpolated: (c(a,b) + p(b)) / (c(a) + 1), p = (c(b)+1)/(N+V)).
double BigramLoss(const TokenDataset& data, const WindowSplit& split, uint32_t sequences, uint32_t tokens,
                  uint32_t microbatches);

}  // namespace stagecoach
