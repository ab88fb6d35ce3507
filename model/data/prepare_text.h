// Text files to a folder of token shards (dataset.json, shard-00000.bin ..., and tokenizer.model for SentencePiece).
// The same inputs give the same bytes; the index is written last, so an interrupted call leaves an unfinished folder
// that the next call overwrites. Memory is bounded by one shard, whatever the inputs.
//
// Threading: one thread. Errors: NOT_FOUND, INVALID_ARGUMENT, DATA_LOSS (inputs), RESOURCE_EXHAUSTED (disk),
// CANCELLED.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/data/dataset_index.h"

namespace stagecoach {

struct PrepareOptions {
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer = "bytes";  // or the path of a SentencePiece model
  std::function<bool()> interrupted =
      {};                             // asked between pieces of text; true ends the call with CANCELLED; may be empty
  uint32_t shard_tokens = 32u << 20;  // 64 MiB a shard: held in memory while it fills, fetched as one object
};

struct PrepareResult {
  DatasetIndex index;
  uint64_t tokens = 0;
  size_t files = 0;
  std::vector<std::string> skipped;  // binary files in the folders
};

absl::StatusOr<PrepareResult> PrepareText(const PrepareOptions& options);

}  // namespace stagecoach
