#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/data/dataset_index.h"
#include "model/data/tokenizer.h"
#include "model/main/commands.h"
#include "model/main/run_loading.h"
#include "model/main/whole_model.h"

namespace stagecoach {
namespace {

// What the run's data say about their ids. A bare .bin file says nothing; 256 ids can only be bytes.
absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const RunConfig& config) {
  const auto index = ReadDatasetIndex(config.data_path);
  if (index.ok() && index->tokenizer == "sentencepiece") {
    return Tokenizer::Create(absl::StrCat(config.data_path, "/", kTokenizerModelName));
  }
  if ((index.ok() && index->tokenizer == "bytes") || config.model.vocabulary <= 256) return Tokenizer::Create("bytes");
  return absl::FailedPreconditionError(
      absl::StrCat("the tokenizer of ", config.data_path, " is not known, so its ids cannot be turned into text"));
}

absl::StatusOr<std::vector<int64_t>> PromptIds(Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int64_t> ids;
  const auto sink = [&](absl::Span<const uint16_t> piece) {
    ids.insert(ids.end(), piece.begin(), piece.end());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(tokenizer.Encode(prompt, sink));
  RETURN_IF_ERROR(tokenizer.FinishText(sink));
  if (ids.empty()) return absl::InvalidArgumentError("the prompt holds no tokens");
  return ids;
}

}  // namespace

absl::Status RunGenerate(const GenerateCommand& command) {
  ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(command.run_dir));
  ASSIGN_OR_RETURN(const CheckpointFiles checkpoint, FindCheckpoint(command.run_dir, command.step));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerOf(config));
  ASSIGN_OR_RETURN(std::vector<int64_t> text, PromptIds(*tokenizer, command.prompt));
  for (const int64_t id : text) {
    if (id < config.model.vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has token id ", id, "; the model knows ids below ", config.model.vocabulary));
  }
  PrepareTorch(config.threads);
  ASSIGN_OR_RETURN(const WholeModel model, WholeModel::Load(config, checkpoint.unit_files));
  SampleOptions options;
  options.count = command.tokens;
  options.top_k = command.top_k;
  options.temperature = command.temperature;
  options.seed = command.seed;
  const std::vector<int64_t> sampled = model.Sample(text, options);
  // A model may have more ids than its text; those mean nothing.
  std::copy_if(sampled.begin(), sampled.end(), std::back_inserter(text),
               [&](int64_t id) { return id < static_cast<int64_t>(tokenizer->vocabulary()); });
  ASSIGN_OR_RETURN(const std::string decoded, tokenizer->Decode(text));
  std::cout << decoded << "\n";
  return absl::OkStatus();
}

}  // namespace stagecoach
