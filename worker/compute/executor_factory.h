// Makes executors without showing torch to those who wire the worker.
//
// Threading: call on the compute thread. Errors: INVALID_ARGUMENT (config, checkpoint shapes), DATA_LOSS (checkpoint
// file), RESOURCE_EXHAUSTED (does not fit), FAILED_PRECONDITION (device).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/run_config.h"
#include "worker/compute/stage_executor.h"
#include "worker/tensor/host_buffer.h"

namespace stagecoach {

struct ExecutorOptions {
  RunConfig config;
  uint32_t stage = 0;
  uint32_t window = 1;         // N_i: bounds the stash
  uint64_t first_step = 0;     // versions VersionOf(first_step*M)..first_step are loaded into buffers 0, 1, ...
  std::string checkpoint_dir;  // empty: initial weights (then first_step = 0)
  std::string device = "cpu";  // cpu, cuda, cuda:N
  std::shared_ptr<HostBufferPool> pool;  // outputs are allocated here
};

absl::StatusOr<std::unique_ptr<StageExecutor>> CreateTorchExecutor(const ExecutorOptions& options);

struct ExecutorFingerprint {
  std::string basis_sha256, anchor_sha256;
};
// Hashes of what this machine regenerates from counters, to compare with the record.
absl::StatusOr<ExecutorFingerprint> TorchFingerprint(const RunConfig& config);

// Seconds per unit kind on this device: 2 warm-ups, then passes until 5 are done or 0.5 s is used up; samples > 15 %
// off the median dropped.
struct MeasuredUnit {
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
  uint64_t parameters = 0, activation_bytes = 0;
};
struct MeasuredUnits {
  MeasuredUnit embedding, block, tail_block, head;
};
absl::StatusOr<MeasuredUnits> MeasureTorchUnits(const RunConfig& config, const std::string& device);

// Integer arithmetic on the payload bytes and version numbers, with a fixed compute time: any wrong order, version,
// buffer or payload changes the final state. The state of version v is one 64-bit number a unit.
struct FakeCosts {
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
};  // slept
std::unique_ptr<StageExecutor> CreateFakeExecutor(const ExecutorOptions& options, const FakeCosts& costs);

}  // namespace stagecoach
