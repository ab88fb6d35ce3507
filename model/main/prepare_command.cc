#include <iostream>

#include "common/status_macros.h"
#include "model/data/prepare_text.h"
#include "model/main/commands.h"
#include "nlohmann/json.hpp"

namespace stagecoach {

absl::Status RunPrepare(const PrepareCommand& command) {
  PrepareOptions options;
  options.inputs = command.inputs;
  options.output = command.output;
  options.tokenizer = command.tokenizer;
  ASSIGN_OR_RETURN(const PrepareResult result, PrepareText(options));
  for (const std::string& file : result.skipped) std::cerr << "stagecoach-model: skipped " << file << ": not text\n";
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (const auto& shard : result.index.shards) {
    shards.push_back({{"name", shard.name}, {"tokens", shard.tokens}, {"sha256", shard.sha256}});
  }
  const nlohmann::ordered_json report = {{"output", command.output},
                                         {"files", result.files},
                                         {"tokens", result.tokens},
                                         {"tokenizer", result.index.tokenizer},
                                         {"vocabulary", result.index.vocabulary},
                                         {"shards", shards}};
  std::cout << report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  return absl::OkStatus();
}

}  // namespace stagecoach
