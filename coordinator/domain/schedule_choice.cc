#include "coordinator/domain/schedule_choice.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace stagecoach {
namespace {

constexpr uint32_t kMaxChosenDelay = 4;       // tau in steps that a plan may choose (02 section 9)
constexpr uint32_t kMaxMicrobatches = 4096;   // of the run spec
constexpr uint32_t kMaxStashedVersions = 64;  // pipedream keeps this many copies of a stage at most

uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

std::vector<uint32_t> WindowsOf(const ScheduleWish& wish, uint32_t microbatches, const PipelineSpeed& speed) {
  std::vector<uint32_t> windows = speed.windows;
  const uint32_t num_stages = static_cast<uint32_t>(windows.size());
  for (uint32_t i = 0; i < num_stages; ++i) {
    if (wish.kind == ScheduleName::kSync1f1b) windows[i] = num_stages - i;
    if (wish.kind == ScheduleName::kGpipe) windows[i] = microbatches;
    if (wish.kind == ScheduleName::kPipedream) windows[i] = std::min(windows[i], kMaxStashedVersions);
  }
  return windows;
}

void ExplainDelay(uint32_t m, const PipelineSpeed& speed, ScheduleChoice* choice) {
  choice->explanation.push_back(absl::StrFormat(
      "J %u of M %u: phi %.3g, oldest weights %u steps, synchronous efficiency "
      "%.3f",
      choice->j, m, static_cast<double>(choice->j) / m, CeilDiv(choice->j, m), choice->synchronous_efficiency));
  const double cycles = speed.loop_seconds / speed.microbatch_seconds;
  const uint32_t enough = static_cast<uint32_t>(std::min(4096.0, std::max(1.0, std::ceil(19 * (cycles - 1)))));
  choice->explanation.push_back(
      absl::StrCat("M = ", 4 * speed.windows[0], " gives phi <= 0.25; M >= ", enough, " allows J = 0"));
}

absl::Status ChooseDelay(const ScheduleWish& wish, uint32_t m, const PipelineSpeed& speed, ScheduleChoice* choice) {
  switch (wish.kind) {
    case ScheduleName::kFd2bw:
      choice->j = wish.j >= 0 ? static_cast<uint32_t>(wish.j)
                              : ChooseJ(m, speed.windows[0], speed.microbatch_seconds, speed.loop_seconds,
                                        speed.update_seconds);
      break;
    case ScheduleName::k2bw:
      choice->j = m;
      break;
    default:
      choice->j = 0;
  }
  if (wish.j < 0 && CeilDiv(choice->j, m) > kMaxChosenDelay) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "schedule.microbatches: %u is too few for these links: %u microbatches are in flight (loop %.0f ms, cycle %.1f "
        "ms), "
        "so weights would be %u steps old; use microbatches >= %u, smaller microbatches, fewer stages, or give "
        "schedule.j",
        m, speed.windows[0], speed.loop_seconds * 1e3, speed.microbatch_seconds * 1e3, CeilDiv(choice->j, m),
        CeilDiv(choice->j, kMaxChosenDelay)));
  }
  if (choice->j > 8ull * m) {
    return absl::FailedPreconditionError(absl::StrCat("schedule.j: ", choice->j, " is above 8 x microbatches ", m,
                                                      "; use a larger schedule.microbatches"));
  }
  return absl::OkStatus();
}

}  // namespace

double MicrobatchesPerSecond(uint32_t microbatches, bool synchronous, const std::vector<uint32_t>& windows,
                             const PipelineSpeed& speed) {
  double cycle = speed.microbatch_seconds;
  for (size_t i = 0; i < windows.size(); ++i) cycle = std::max(cycle, speed.loop_from_stage[i] / windows[i]);
  const double m = microbatches;
  if (!synchronous) return 1 / (cycle + speed.update_seconds / m);
  return m / ((m - 1) * cycle + speed.loop_seconds + speed.update_seconds);
}

absl::StatusOr<ScheduleChoice> ChooseSchedule(const ScheduleWish& wish, const PipelineSpeed& speed) {
  ScheduleChoice choice;
  const uint32_t n = speed.windows[0];
  uint32_t m = wish.microbatches > 0 ? wish.microbatches : std::min(2 * n, kMaxMicrobatches);
  choice.windows = WindowsOf(wish, m, speed);
  if (wish.kind == ScheduleName::kPipedream) {
    choice.updates_per_step = m;
    m = 1;
    for (const uint32_t window : choice.windows) choice.stage_delays.push_back(window - 1);
    choice.delayed = choice.windows[0] > 1;
  }
  choice.microbatches = m;
  choice.synchronous_efficiency =
      SynchronousEfficiency(m, speed.microbatch_seconds, speed.loop_seconds, speed.update_seconds);
  if (absl::Status status = ChooseDelay(wish, m, speed, &choice); !status.ok()) return status;
  choice.delayed = choice.delayed || choice.j > 0;
  choice.j_table = {{0, choice.j}};
  if (choice.j > 0 && wish.sync_warmup_steps > 0 && wish.kind == ScheduleName::kFd2bw) {
    choice.j_table = {{0, 0}};
    if (wish.sync_warmup_steps < wish.steps) choice.j_table.push_back({wish.sync_warmup_steps, choice.j});
  }
  choice.microbatches_per_second = MicrobatchesPerSecond(m, !choice.delayed, choice.windows, speed);
  choice.explanation.push_back(
      absl::StrCat("windows N_i ", absl::StrJoin(choice.windows, " "), "; bottleneck: ", speed.bottleneck));
  if (wish.kind == ScheduleName::kPipedream) {
    choice.explanation.push_back(
        absl::StrCat("an update after every microbatch; stage delays ", absl::StrJoin(choice.stage_delays, " ")));
  } else {
    ExplainDelay(m, speed, &choice);
  }
  return choice;
}

}  // namespace stagecoach
