#include "model/data/token_dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "model/data/dataset_index.h"
#include "model/data/shard_formats.h"

namespace stagecoach {
namespace {

uint32_t LargestId(absl::Span<const uint16_t> tokens) {
  uint16_t largest = 0;
  for (const uint16_t id : tokens) largest = std::max(largest, id);
  return largest;
}

// Ids and labels of one window are the same tokens, shifted by one.
void CopyWindow(const TokenDataset& data, uint64_t window, absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
  const size_t tokens = ids.size();
  data.Read(window * tokens, ids);
  data.Read(window * tokens + tokens, labels.subspan(tokens - 1));
  std::copy(ids.begin() + 1, ids.end(), labels.begin());
}

}  // namespace

struct TokenDataset::Impl {
  std::vector<TokenShard> shards;
  std::vector<MappedTokens> mapped;
  std::vector<uint64_t> starts;  // position of the first token of each shard
  uint64_t num_tokens = 0;
  uint32_t vocabulary = 0;
  std::string tokenizer = "unknown", tokenizer_path;

  void Add(TokenShard shard, MappedTokens tokens) {
    starts.push_back(num_tokens);
    num_tokens += shard.tokens;
    shards.push_back(std::move(shard));
    mapped.push_back(std::move(tokens));
  }

  absl::Status OpenFile(const std::string& path, bool verify) {
    ASSIGN_OR_RETURN(MappedTokens tokens, MappedTokens::Open(path, /*require_header=*/false));
    TokenShard shard{path, "", tokens.tokens().size()};
    if (verify) {
      ASSIGN_OR_RETURN(shard.sha256, Sha256OfFile(path));
    }
    vocabulary = std::max(2u, LargestId(tokens.tokens()) + 1);  // such files do not say how many ids there are
    Add(std::move(shard), std::move(tokens));
    return absl::OkStatus();
  }

  absl::Status OpenFolder(const std::string& folder, bool verify) {
    ASSIGN_OR_RETURN(const DatasetIndex index, ReadDatasetIndex(folder));
    vocabulary = index.vocabulary;
    tokenizer = index.tokenizer;
    if (tokenizer == "sentencepiece") tokenizer_path = absl::StrCat(folder, "/", kTokenizerModelName);
    for (const auto& listed : index.shards) {
      TokenShard shard{absl::StrCat(folder, "/", listed.name), listed.sha256, listed.tokens};
      ASSIGN_OR_RETURN(MappedTokens tokens, MappedTokens::Open(shard.path, /*require_header=*/true));
      if (tokens.tokens().size() != shard.tokens) {
        return absl::InvalidArgumentError(absl::StrCat(shard.path, ": it holds ", tokens.tokens().size(), " tokens, ",
                                                       kDatasetIndexName, " says ", shard.tokens));
      }
      if (verify) RETURN_IF_ERROR(VerifyShard(shard, tokens));
      Add(std::move(shard), std::move(tokens));
    }
    return absl::OkStatus();
  }

  absl::Status VerifyShard(const TokenShard& shard, const MappedTokens& tokens) const {
    ASSIGN_OR_RETURN(const std::string hash, Sha256OfFile(shard.path));
    if (hash != shard.sha256) {
      return absl::InvalidArgumentError(absl::StrCat(shard.path, ": its SHA-256 is ", hash, ", ", kDatasetIndexName,
                                                     " says ", shard.sha256, "; the file was changed or damaged"));
    }
    if (const uint32_t largest = LargestId(tokens.tokens()); largest >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat(shard.path, ": it holds id ", largest, ", outside the vocabulary of ", vocabulary));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<TokenDataset> TokenDataset::Open(const std::string& path, bool verify) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (path.empty() || error || !std::filesystem::exists(absolute, error)) {
    return absl::NotFoundError(absl::StrCat("data path '", path, "' does not exist or cannot be reached"));
  }
  auto impl = std::make_unique<Impl>();
  RETURN_IF_ERROR(std::filesystem::is_directory(absolute, error) ? impl->OpenFolder(absolute, verify)
                                                                 : impl->OpenFile(absolute, verify));
  return TokenDataset(std::move(impl));
}

TokenDataset::TokenDataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&&) noexcept = default;
TokenDataset::~TokenDataset() = default;

const std::vector<TokenShard>& TokenDataset::shards() const { return impl_->shards; }
uint64_t TokenDataset::num_tokens() const { return impl_->num_tokens; }
uint32_t TokenDataset::vocabulary() const { return impl_->vocabulary; }
const std::string& TokenDataset::tokenizer() const { return impl_->tokenizer; }
const std::string& TokenDataset::tokenizer_path() const { return impl_->tokenizer_path; }

void TokenDataset::Read(uint64_t first, absl::Span<int64_t> out) const {
  const auto& starts = impl_->starts;
  auto shard = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), first) - starts.begin()) - 1;
  uint64_t offset = first - starts[shard];
  while (!out.empty()) {
    const absl::Span<const uint16_t> tokens = impl_->mapped[shard].tokens();
    const size_t count = std::min<uint64_t>(out.size(), tokens.size() - offset);
    std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(offset), count, out.begin());
    out.remove_prefix(count);
    offset = 0;
    ++shard;
  }
}

void ReadMicrobatch(const TokenDataset& data, uint64_t seed, uint64_t training_windows, uint64_t n, uint32_t sequences,
                    uint32_t tokens, absl::Span<int64_t> ids, absl::Span<int64_t> labels) {
  for (uint64_t b = 0; b < sequences; ++b) {
    const uint64_t position = n * sequences + b;
    const uint64_t window =
        PermuteWindow(seed, position / training_windows, training_windows, position % training_windows);
    CopyWindow(data, window, ids.subspan(b * tokens, tokens), labels.subspan(b * tokens, tokens));
  }
}

void ReadEvaluationMicrobatch(const TokenDataset& data, uint64_t training_windows, uint64_t evaluation_windows,
                              uint64_t e, uint32_t sequences, uint32_t tokens, absl::Span<int64_t> ids,
                              absl::Span<int64_t> labels) {
  for (uint64_t b = 0; b < sequences; ++b) {
    const uint64_t window = training_windows + (e * sequences + b) % evaluation_windows;
    CopyWindow(data, window, ids.subspan(b * tokens, tokens), labels.subspan(b * tokens, tokens));
  }
}

}  // namespace stagecoach
