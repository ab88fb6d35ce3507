// The subcommands of stagecoach-model. Results go to standard output, or into the file that was asked for.
//
// Threading: the main thread. Errors: absl::Status; torch exceptions pass through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

struct PrepareCommand {
  std::vector<std::string> inputs;
  std::string output, tokenizer = "bytes";
};
absl::Status RunPrepare(const PrepareCommand& command);

struct BigramCommand {
  std::string data;
  uint32_t sequence_tokens = 256, sequences = 1, microbatches = 8;
  double validation_fraction = 0.02;
};
absl::Status RunBigram(const BigramCommand& command);

struct OracleCommand {
  std::string run_dir, report;
  uint64_t stop_after = 0;  // 0: the whole schedule
};
absl::Status RunOracleCommand(const OracleCommand& command);

struct EvalCommand {
  std::string run_dir, data;     // data: empty = that of the run
  std::optional<uint64_t> step;  // empty: the newest checkpoint that verifies
};
absl::Status RunEval(const EvalCommand& command);

struct GenerateCommand {
  std::string run_dir, prompt = "\n";
  std::optional<uint64_t> step;
  int64_t tokens = 200, top_k = 50;
  double temperature = 0.8;
  uint64_t seed = 1;
};
absl::Status RunGenerate(const GenerateCommand& command);

}  // namespace stagecoach
