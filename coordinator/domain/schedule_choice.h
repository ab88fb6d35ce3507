// Turns the user's schedule and a predicted speed into the numbers of the run: M, J table, windows, delays, steps, and
// says why (docs/architecture.md, "Choosing J").
//
// Threading: pure function. Errors: FAILED_PRECONDITION with advice if weights would be more than 4 steps old.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/schedule_rules.h"
#include "coordinator/domain/pipeline_prediction.h"

namespace stagecoach {

enum class ScheduleName { kFd2bw, kSync, kSync1f1b, kGpipe, k2bw, kPipedream };

struct ScheduleWish {
  ScheduleName kind = ScheduleName::kFd2bw;
  uint64_t steps = 1;         // of M microbatches
  uint32_t microbatches = 0;  // 0 = chosen here
  int64_t j = -1;             // -1 = chosen here
  uint64_t sync_warmup_steps = 0;
};

struct ScheduleChoice {
  uint32_t microbatches = 1;      // M as the engine sees it: 1 with pipedream
  uint64_t updates_per_step = 1;  // pipedream: the M of the user; every step count is multiplied by it
  uint32_t j = 0;
  std::vector<JTableEntry> j_table;
  std::vector<uint32_t> windows;       // N_i
  std::vector<uint32_t> stage_delays;  // pipedream only
  bool delayed = false;                // some microbatch uses old weights
  double synchronous_efficiency = 0;
  // Cycle time with the windows, and microbatches a second with what the schedule idles.
  double microbatches_per_second = 0;
  std::vector<std::string> explanation;
};

absl::StatusOr<ScheduleChoice> ChooseSchedule(const ScheduleWish& wish, const PipelineSpeed& speed);

// Microbatches a second of given M, J, windows at this speed (also for the bound without links, and for resumed runs).
double MicrobatchesPerSecond(uint32_t microbatches, bool synchronous, const std::vector<uint32_t>& windows,
                             const PipelineSpeed& speed);

}  // namespace stagecoach
