#include <iostream>

#include "common/status_macros.h"
#include "model/data/token_dataset.h"
#include "model/main/commands.h"
#include "nlohmann/json.hpp"

namespace stagecoach {

absl::Status RunBigram(const BigramCommand& command) {
  ASSIGN_OR_RETURN(const TokenDataset data, TokenDataset::Open(command.data, /*verify=*/true));
  ASSIGN_OR_RETURN(const WindowSplit split,
                   SplitWindows(data.num_tokens(), command.sequence_tokens, command.validation_fraction));
  const nlohmann::ordered_json report = {
      {"bigram_loss", BigramLoss(data, split, command.sequences, command.sequence_tokens, command.microbatches)},
      {"tokens", data.num_tokens()},
      {"vocabulary", data.vocabulary()},
      {"training_windows", split.training},
      {"evaluation_windows", split.evaluation}};
  std::cout << report.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace stagecoach
