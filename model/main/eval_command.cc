#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/data/token_dataset.h"
#include "model/main/commands.h"
#include "model/main/run_loading.h"
#include "model/main/whole_model.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr uint32_t kDefaultMicrobatches = 8;  // where the run itself evaluates nothing

// The run's own split for the run's own data; other data are split in the same proportion.
absl::StatusOr<WindowSplit> SplitOf(const RunConfig& config, const TokenDataset& data, bool own_data) {
  const uint64_t windows = config.training_windows + config.evaluation_windows;
  if (!own_data) {
    return SplitWindows(data.num_tokens(), config.tokens,
                        static_cast<double>(config.evaluation_windows) / static_cast<double>(windows));
  }
  if (data.num_tokens() < windows * config.tokens + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.data_path, " is shorter than when the run was recorded; name the data with --data"));
  }
  return WindowSplit{config.training_windows, config.evaluation_windows};
}

}  // namespace

absl::Status RunEval(const EvalCommand& command) {
  ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(command.run_dir));
  ASSIGN_OR_RETURN(const CheckpointFiles checkpoint, FindCheckpoint(command.run_dir, command.step));
  const bool own_data = command.data.empty();
  ASSIGN_OR_RETURN(const TokenDataset data,
                   TokenDataset::Open(own_data ? config.data_path : command.data, /*verify=*/true));
  if (data.vocabulary() > config.model.vocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data have ", data.vocabulary(), " token ids, the model knows ", config.model.vocabulary));
  }
  ASSIGN_OR_RETURN(const WindowSplit split, SplitOf(config, data, own_data));
  PrepareTorch(config.threads);
  ASSIGN_OR_RETURN(const WholeModel model, WholeModel::Load(config, checkpoint.unit_files));

  const uint32_t microbatches =
      config.evaluation_microbatches > 0 ? config.evaluation_microbatches : kDefaultMicrobatches;
  const size_t batch = size_t{config.sequences} * config.tokens;
  std::vector<int64_t> ids(batch), labels(batch);
  double sum = 0;
  for (uint32_t e = 0; e < microbatches; ++e) {
    ReadEvaluationMicrobatch(data, split.training, split.evaluation, e, config.sequences, config.tokens,
                             absl::MakeSpan(ids), absl::MakeSpan(labels));
    sum += model.LossSum(ids, labels);
  }
  const uint64_t tokens = uint64_t{microbatches} * batch;
  const nlohmann::ordered_json report = {
      {"step", checkpoint.step},
      {"validation_loss", sum / static_cast<double>(tokens)},
      {"bigram_loss", BigramLoss(data, split, config.sequences, config.tokens, microbatches)},
      {"tokens", tokens},
      {"microbatches", microbatches},
      {"weight_hash", checkpoint.weight_hash}};
  std::cout << report.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace stagecoach
