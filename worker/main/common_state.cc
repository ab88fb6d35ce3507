#include "worker/main/common_state.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/compute/checkpoint_units.h"

namespace stagecoach {
namespace {

constexpr char kRounds[] = "rounds";
constexpr char kTheta[] = "common.theta";
constexpr char kMomentum[] = "common.momentum";
constexpr char kResidual[] = "common.residual";
constexpr char kPinned[] = "common.pinned";

void AddPart(const char* name, absl::Span<const float> values, uint64_t first, uint64_t count, CheckpointUnit* unit) {
  if (values.empty()) return;
  const absl::Span<const float> part = values.subspan(first, count);
  unit->tensors.push_back({name,
                           {static_cast<int64_t>(count)},
                           std::string(reinterpret_cast<const char*>(part.data()), part.size() * sizeof(float))});
}

absl::Status ReadPart(const SafetensorsReader& file, const std::string& file_name, const char* name, uint64_t count,
                      std::vector<float>* values) {
  const size_t bytes = count * sizeof(float), before = values->size();
  ASSIGN_OR_RETURN(const absl::string_view data, CheckpointBytes(file, file_name, name, bytes));
  values->resize(before + count);
  if (bytes > 0) std::memcpy(values->data() + before, data.data(), bytes);
  return absl::OkStatus();
}

}  // namespace

void AddCommonState(const CommonState& state, absl::Span<const uint64_t> unit_parameters,
                    std::vector<CheckpointUnit>* units) {
  uint64_t first = 0;
  for (size_t i = 0; i < units->size(); ++i) {
    CheckpointUnit& unit = (*units)[i];
    AddPart(kTheta, state.theta, first, unit_parameters[i], &unit);
    AddPart(kMomentum, state.momentum, first, unit_parameters[i], &unit);
    AddPart(kResidual, state.residual, first, unit_parameters[i], &unit);
    AddPart(kPinned, state.pinned, first, unit_parameters[i], &unit);
    unit.metadata[kRounds] = absl::StrCat(state.rounds);
    first += unit_parameters[i];
  }
}

absl::StatusOr<CommonState> ReadCommonState(const std::string& checkpoint_dir, uint64_t step, uint64_t total_steps,
                                            const AveragingConfig& averaging, uint32_t first_unit,
                                            absl::Span<const uint64_t> unit_parameters) {
  CommonState state;
  state.rounds = averaging.rounds.BegunBy(step);
  for (uint32_t i = 0; i < unit_parameters.size(); ++i) {
    const std::string name = absl::StrCat(checkpoint_dir, " unit ", first_unit + i);
    ASSIGN_OR_RETURN(const SafetensorsReader file, OpenCheckpointUnit(checkpoint_dir, first_unit + i, step));
    const auto rounds = file.metadata().find(kRounds);
    if (rounds == file.metadata().end() || rounds->second != absl::StrCat(state.rounds)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " was written after ", rounds == file.metadata().end() ? std::string("(not stated)") : rounds->second,
          " rounds between clusters, expected ", state.rounds, " at step ", step,
          "; it cannot be resumed: start a new run in another folder"));
    }
    const uint64_t count = unit_parameters[i];
    RETURN_IF_ERROR(ReadPart(file, name, kTheta, count, &state.theta));
    if (averaging.outer.HasMomentum()) RETURN_IF_ERROR(ReadPart(file, name, kMomentum, count, &state.momentum));
    if (averaging.error_feedback) RETURN_IF_ERROR(ReadPart(file, name, kResidual, count, &state.residual));
    if (averaging.rounds.OpenAfter(step, total_steps))
      RETURN_IF_ERROR(ReadPart(file, name, kPinned, count, &state.pinned));
  }
  return state;
}

}  // namespace stagecoach
