// A trained model with all its units in one process, from the files of a checkpoint. The interface shows neither torch
// nor protobuf, so that callers may include either.
//
// Threading: one thread. Errors: DATA_LOSS names the file and tensor; torch exceptions pass through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/run_config.h"

namespace stagecoach {

struct SampleOptions {
  int64_t count = 200, top_k = 50;
  double temperature = 0.8;
  uint64_t seed = 1;
};

// Threads and deterministic algorithms, as the run has them. Call it before anything else of torch.
void PrepareTorch(int threads);

class WholeModel {
 public:
  // unit_files: one path a unit, in order. Reads w.0.* of each.
  static absl::StatusOr<WholeModel> Load(const RunConfig& config, const std::vector<std::string>& unit_files);
  WholeModel(WholeModel&&) noexcept;
  WholeModel& operator=(WholeModel&&) noexcept;
  ~WholeModel();

  // Sum of the token losses of B x T ids, nats, without dropout.
  double LossSum(absl::Span<const int64_t> ids, absl::Span<const int64_t> labels) const;
  // New tokens after the prompt, which must not be empty.
  std::vector<int64_t> Sample(const std::vector<int64_t>& prompt, const SampleOptions& options) const;

 private:
  struct Impl;
  explicit WholeModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecoach
