// dataset.json of a prepared folder: which shards there are, what their ids mean. Written last, so a folder without it
// is incomplete.
//
// Threading: values. Errors: NOT_FOUND; INVALID_ARGUMENT names the file and the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

constexpr char kDatasetIndexName[] = "dataset.json";
constexpr char kTokenizerModelName[] = "tokenizer.model";
constexpr uint32_t kMaxVocabulary = 1 << 16;  // ids are stored in 16 bits

struct DatasetIndex {
  struct Shard {
    std::string name;  // shard-00000.bin
    std::string sha256;
    uint64_t tokens = 0;
  };
  std::string tokenizer = "bytes";  // or "sentencepiece": the model lies beside it as tokenizer.model
  uint32_t vocabulary = 256;
  std::vector<Shard> shards;
};

std::string ShardName(size_t index);
std::string DatasetIndexJson(const DatasetIndex& index);
absl::StatusOr<DatasetIndex> ReadDatasetIndex(const std::string& folder);

}  // namespace stagecoach
