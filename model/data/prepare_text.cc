#include "model/data/prepare_text.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/durable_file.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "model/data/shard_formats.h"
#include "model/data/text_source.h"
#include "model/data/tokenizer.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMaxModelBytes = 256u << 20;

// Collects ids and writes a shard whenever one is full.
class ShardWriter {
 public:
  ShardWriter(std::string folder, uint32_t shard_tokens, DatasetIndex* index)
      : folder_(std::move(folder)), shard_tokens_(shard_tokens), index_(index) {
    Clear();
  }

  absl::Status Add(absl::Span<const uint16_t> ids) {
    while (!ids.empty()) {
      const size_t count = std::min<size_t>(ids.size(), shard_tokens_ - filled_);
      bytes_.append(reinterpret_cast<const char*>(ids.data()), count * sizeof(uint16_t));
      filled_ += static_cast<uint32_t>(count);
      ids.remove_prefix(count);
      if (filled_ == shard_tokens_) RETURN_IF_ERROR(Flush());
    }
    return absl::OkStatus();
  }

  absl::Status Flush() {
    if (filled_ == 0) return absl::OkStatus();
    bytes_.replace(0, kTokenFileHeaderBytes, TokenFileHeader(filled_));
    const std::string name = ShardName(index_->shards.size());
    RETURN_IF_ERROR(WriteDurably(SystemFiles(), folder_, name, bytes_));
    index_->shards.push_back({name, Sha256Hex(bytes_), filled_});
    Clear();
    return absl::OkStatus();
  }

 private:
  void Clear() {
    bytes_.assign(kTokenFileHeaderBytes, '\0');
    filled_ = 0;
  }

  std::string folder_;
  uint32_t shard_tokens_;
  DatasetIndex* index_;
  std::string bytes_;
  uint32_t filled_ = 0;
};

// One text out of many: files are joined in order, each starting on a new line.
absl::Status EncodeFiles(const std::vector<std::string>& files, const std::function<bool()>& interrupted,
                         Tokenizer& tokenizer, ShardWriter& writer) {
  const auto sink = [&](absl::Span<const uint16_t> ids) { return writer.Add(ids); };
  char last = '\n';
  for (const std::string& file : files) {
    if (last != '\n') RETURN_IF_ERROR(tokenizer.Encode("\n", sink));
    last = '\n';
    RETURN_IF_ERROR(ReadTextFile(file, [&](absl::string_view piece) {
      if (interrupted && interrupted()) return absl::CancelledError("interrupted while preparing the text");
      last = piece.back();
      return tokenizer.Encode(piece, sink);
    }));
  }
  RETURN_IF_ERROR(tokenizer.FinishText(sink));
  return writer.Flush();
}

// Shards of an earlier, longer preparation, which the new index does not list.
void RemoveLeftovers(const std::string& folder, size_t num_shards) {
  for (size_t i = num_shards;; ++i) {
    if (SystemFiles().Remove(absl::StrCat(folder, "/", ShardName(i))) < 0) break;
  }
  RemoveAbandonedFiles(SystemFiles(), folder);
}

}  // namespace

absl::StatusOr<PrepareResult> PrepareText(const PrepareOptions& options) {
  if (options.inputs.empty() || options.output.empty() || options.shard_tokens == 0) {
    return absl::InvalidArgumentError("prepare needs inputs, an output folder and shards of at least one token");
  }
  PrepareResult result;
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(options.tokenizer));
  ASSIGN_OR_RETURN(TextFiles found, FindTextFiles(options.inputs, options.output));
  result.files = found.files.size();
  result.skipped = std::move(found.skipped);
  result.index.tokenizer = tokenizer->is_bytes() ? "bytes" : "sentencepiece";
  result.index.vocabulary = tokenizer->vocabulary();

  std::string model;
  if (!tokenizer->is_bytes()) RETURN_IF_ERROR(ReadWholeFile(options.tokenizer, kMaxModelBytes, &model));
  // Without the old index, a folder whose shards are half replaced cannot be taken for a finished one.
  SystemFiles().Remove(absl::StrCat(options.output, "/", kDatasetIndexName));
  ShardWriter writer(options.output, options.shard_tokens, &result.index);
  RETURN_IF_ERROR(EncodeFiles(found.files, options.interrupted, *tokenizer, writer));
  if (result.index.shards.empty()) return absl::InvalidArgumentError("the inputs hold no text");
  for (const auto& shard : result.index.shards) result.tokens += shard.tokens;
  if (!model.empty()) RETURN_IF_ERROR(WriteDurably(SystemFiles(), options.output, kTokenizerModelName, model));
  RemoveLeftovers(options.output, result.index.shards.size());
  RETURN_IF_ERROR(WriteDurably(SystemFiles(), options.output, kDatasetIndexName, DatasetIndexJson(result.index)));
  return result;
}

}  // namespace stagecoach
