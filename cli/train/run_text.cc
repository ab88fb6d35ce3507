#include "cli/train/run_text.h"

#include <cstdio>
#include <filesystem>

#include "common/status_macros.h"
#include "model/data/prepare_text.h"
#include "model/data/token_dataset.h"

namespace stagecoach {
namespace {

constexpr float kDefaultValidationFraction = 0.02f;     // of run.proto, while the spec has not been filled in
constexpr uint32_t kDefaultEvaluationMicrobatches = 8;  // likewise

}  // namespace

bool IsPreparedData(const std::string& path) {
  if (std::filesystem::is_directory(path)) return std::filesystem::exists(path + "/dataset.json");
  return path.ends_with(".bin");
}

absl::Status PrepareRunData(RunSpec* spec) {
  const std::string text = spec->data().path();
  if (IsPreparedData(text)) return absl::OkStatus();
  PrepareOptions options;
  options.inputs = {text};
  options.output = spec->run_dir() + "/data";
  ASSIGN_OR_RETURN(const PrepareResult result, PrepareText(options));
  std::fprintf(stderr, "prepared %llu tokens of %s\n", static_cast<unsigned long long>(result.tokens), text.c_str());
  spec->mutable_data()->set_path(options.output);
  return absl::OkStatus();
}

absl::StatusOr<double> RunBigramLoss(const RunSpec& spec) {
  const ScheduleSpec& schedule = spec.schedule();
  const uint32_t microbatches =
      spec.evaluation().has_microbatches() ? spec.evaluation().microbatches() : kDefaultEvaluationMicrobatches;
  if (microbatches == 0) return 0.0;
  const float fraction =
      spec.data().validation_fraction() > 0 ? spec.data().validation_fraction() : kDefaultValidationFraction;
  ASSIGN_OR_RETURN(const TokenDataset data, TokenDataset::Open(spec.data().path(), /*verify=*/false));
  ASSIGN_OR_RETURN(const WindowSplit split, SplitWindows(data.num_tokens(), schedule.sequence_tokens(), fraction));
  return BigramLoss(data, split, schedule.sequences(), schedule.sequence_tokens(), microbatches);
}

}  // namespace stagecoach
