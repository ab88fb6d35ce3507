#include <filesystem>
#include <iostream>
#include <set>

#include "common/durable_file.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "model/data/token_dataset.h"
#include "model/main/commands.h"
#include "model/main/run_loading.h"
#include "model/main/whole_model.h"
#include "model/oracle.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

using nlohmann::ordered_json;

// Losses that are not finite become null: JSON has no NaN.
ordered_json ReportOf(const RunConfig& config, const OracleResult& result) {
  const uint64_t steps = result.losses.size();
  ordered_json evaluations = ordered_json::array();
  for (const OracleEvaluation& evaluation : result.evaluations) {
    evaluations.push_back({{"after_step", evaluation.after_step}, {"loss", evaluation.loss}});
  }
  ordered_json validation;
  if (!result.evaluations.empty()) validation = result.evaluations.back().loss;
  return {{"weight_hash", result.weight_hash},
          {"steps", steps},
          {"tokens", steps * config.microbatches * config.sequences * config.tokens},
          {"loss", result.losses},
          {"validation_loss", validation},
          {"evaluations", evaluations},
          {"skipped_steps", result.skipped_steps},
          {"weights_sha256", result.weights_sha256}};
}

// The run as a whole: losses and evaluations are means over the clusters, the hash is over the weights of all.
OracleResult JoinClusters(const std::vector<OracleResult>& clusters) {
  OracleResult joined = clusters[0];
  const auto count = static_cast<double>(clusters.size());
  if (clusters.size() == 1) return joined;
  std::set<uint64_t> skipped(joined.skipped_steps.begin(), joined.skipped_steps.end());
  for (size_t c = 1; c < clusters.size(); ++c) {
    const OracleResult& own = clusters[c];
    for (size_t t = 0; t < joined.losses.size(); ++t) joined.losses[t] += own.losses[t];
    for (size_t e = 0; e < joined.evaluations.size(); ++e) joined.evaluations[e].loss += own.evaluations[e].loss;
    skipped.insert(own.skipped_steps.begin(), own.skipped_steps.end());
    joined.weights_sha256.insert(joined.weights_sha256.end(), own.weights_sha256.begin(), own.weights_sha256.end());
  }
  for (double& loss : joined.losses) loss /= count;
  for (OracleEvaluation& evaluation : joined.evaluations) evaluation.loss /= count;
  joined.skipped_steps.assign(skipped.begin(), skipped.end());
  Sha256 hash;
  for (const std::string& unit : joined.weights_sha256) hash.Update(unit);
  joined.weight_hash = hash.FinishHex();
  return joined;
}

absl::Status WriteReport(const std::string& path, const std::string& text) {
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  return WriteDurably(SystemFiles(), folder, file.filename().string(), text);
}

}  // namespace

absl::Status RunOracleCommand(const OracleCommand& command) {
  ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(command.run_dir));
  ASSIGN_OR_RETURN(const TokenDataset data, TokenDataset::Open(config.data_path, /*verify=*/true));
  if (data.num_tokens() < (config.training_windows + config.evaluation_windows) * config.tokens + 1) {
    return absl::InvalidArgumentError("the data are shorter than when the run was recorded: " + config.data_path);
  }
  PrepareTorch(config.threads);
  const OracleBatches batches = [&](uint64_t index, bool evaluation, absl::Span<int64_t> ids,
                                    absl::Span<int64_t> labels) {
    if (evaluation) {
      ReadEvaluationMicrobatch(data, config.training_windows, config.evaluation_windows, index, config.sequences,
                               config.tokens, ids, labels);
    } else {
      ReadMicrobatch(data, config.seed, config.training_windows, index, config.sequences, config.tokens, ids, labels);
    }
  };
  OracleOptions options;
  options.stop_after = command.stop_after;
  std::vector<RunConfig> clusters = {config};
  while (clusters.size() < config.num_clusters) {
    ASSIGN_OR_RETURN(RunConfig next, LoadRunConfig(command.run_dir, static_cast<uint32_t>(clusters.size())));
    clusters.push_back(std::move(next));
  }
  const std::vector<OracleResult> results = RunClusterOracle(clusters, batches, options);
  ordered_json json = ReportOf(config, JoinClusters(results));
  json["tokens"] = json["tokens"].get<uint64_t>() * results.size();
  for (const OracleResult& result : results) {
    if (results.size() > 1) json["clusters"].push_back({{"weight_hash", result.weight_hash}, {"loss", result.losses}});
  }
  const std::string report = json.dump(2) + "\n";
  if (command.report.empty() || command.report == "-") {
    std::cout << report;
    return absl::OkStatus();
  }
  return WriteReport(command.report, report);
}

}  // namespace stagecoach
