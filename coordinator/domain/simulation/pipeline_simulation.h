// One pipeline in virtual time, microbatch by microbatch: the schedule of docs/architecture.md with its version rule
// (common/schedule_rules.h), windows, clip scalar and updates, over links with rates, delays and jitter.
//
//   compute lane    a pending update first; else forward and backward alternate, never idle when work exists; the last
//                   stage does both at once
//   uplink          one for all that a worker sends, frame after frame; downlink likewise
//   link            a frame occupies uplink, link and downlink for bytes / rate each; it has arrived when the slowest
//   of
//                   them is through, and one-way delay and jitter have passed; the order of a direction is kept
//
// Traffic of averaging takes its share of up- and downlink all the time. Memory, failures and evaluation are not
// simulated. Equal input gives equal output.
//
// Threading: pure function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stagecoach {

struct SimulatedStage {
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
  uint32_t window = 1;                                        // N_i
  double up_bytes_per_second = 0, down_bytes_per_second = 0;  // left for frames; 0 = not limited
};

// Between stage i and i + 1.
struct SimulatedLink {
  double delay_seconds = 0;                                            // one way
  double jitter_seconds = 0;                                           // up to so much more or less, even
  double forward_bytes_per_second = 0, backward_bytes_per_second = 0;  // 0 = not limited
};

struct PipelineCase {
  std::vector<SimulatedStage> stages;
  std::vector<SimulatedLink> links;  // stages - 1
  double frame_bytes = 0;
  uint32_t microbatches_per_step = 1;  // M
  uint32_t j = 0;                      // J, from the first step on
  bool global_clip = true;             // an update waits for the norms of all stages
  uint64_t warmup_steps = 2;           // not measured
  uint64_t steps = 4;                  // measured
  uint64_t seed = 1;                   // of jitter
};

// Why a compute lane is idle.
enum class SimulatedWait { kInput, kGradient, kCredit, kVersion };
constexpr size_t kNumSimulatedWaits = 4;
const char* SimulatedWaitName(SimulatedWait wait);

struct StageUse {
  double compute = 0, up = 0, down = 0;              // share of the measured time that each was busy
  std::array<double, kNumSimulatedWaits> waiting{};  // shares of it that the compute lane was idle
  uint32_t most_in_flight = 0;
};

struct PipelineOutcome {
  double microbatches_per_second = 0;
  double seconds = 0;  // measured part
  std::vector<StageUse> stages;
};

// Precondition: at least one stage, links = stages - 1, M, steps, windows >= 1, times not negative.
PipelineOutcome SimulatePipeline(const PipelineCase& pipeline);

}  // namespace stagecoach
