#include "model/data/dataset_index.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/durable_file.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr uint64_t kMaxIndexBytes = 64u << 20;  // 400,000 shards

}  // namespace

std::string ShardName(size_t index) { return absl::StrFormat("shard-%05u.bin", index); }

std::string DatasetIndexJson(const DatasetIndex& index) {
  json shards = json::array();
  for (const auto& shard : index.shards) {
    shards.push_back({{"name", shard.name}, {"sha256", shard.sha256}, {"tokens", shard.tokens}});
  }
  const json root = {
      {"format", kFormat}, {"tokenizer", index.tokenizer}, {"vocabulary", index.vocabulary}, {"shards", shards}};
  return root.dump(2) + "\n";
}

absl::StatusOr<DatasetIndex> ReadDatasetIndex(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kDatasetIndexName);
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, "; run `stagecoach-model prepare` again"));
  };
  std::string text;
  const absl::Status read = ReadWholeFile(path, kMaxIndexBytes, &text);
  if (absl::IsNotFound(read)) {
    return absl::NotFoundError(absl::StrCat(folder, " has no ", kDatasetIndexName,
                                            ": it is not a finished folder of `stagecoach-model prepare`"));
  }
  RETURN_IF_ERROR(read);
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return refuse("not a JSON object");
  if (!root.contains("format") || root["format"] != kFormat) return refuse(absl::StrCat("format is not ", kFormat));
  DatasetIndex index;
  if (!root.contains("tokenizer") || (root["tokenizer"] != "bytes" && root["tokenizer"] != "sentencepiece")) {
    return refuse("tokenizer is neither bytes nor sentencepiece");
  }
  index.tokenizer = root["tokenizer"].get<std::string>();
  if (!root.contains("vocabulary") || !root["vocabulary"].is_number_unsigned() ||
      root["vocabulary"].get<uint64_t>() < 2 || root["vocabulary"].get<uint64_t>() > kMaxVocabulary) {
    return refuse(absl::StrCat("vocabulary is not a number from 2 to ", kMaxVocabulary));
  }
  index.vocabulary = root["vocabulary"].get<uint32_t>();
  if (!root.contains("shards") || !root["shards"].is_array() || root["shards"].empty())
    return refuse("it lists no shards");
  for (const json& item : root["shards"]) {
    const size_t number = index.shards.size();
    // The name is known beforehand, so the file can point at nothing else on the disk.
    if (!item.is_object() || !item.contains("name") || item["name"] != ShardName(number)) {
      return refuse(absl::StrCat("shard ", number, " is not named ", ShardName(number)));
    }
    if (!item.contains("sha256") || !item["sha256"].is_string() || !item.contains("tokens") ||
        !item["tokens"].is_number_unsigned()) {
      return refuse(absl::StrCat(ShardName(number), " lacks sha256 or tokens"));
    }
    index.shards.push_back({ShardName(number), item["sha256"].get<std::string>(), item["tokens"].get<uint64_t>()});
  }
  return index;
}

}  // namespace stagecoach
