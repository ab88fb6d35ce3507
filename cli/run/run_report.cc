#include "cli/run/run_report.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/run_spec/run_spec_fields.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

std::string StateName(RunState state) {
  switch (state) {
    case RUN_STATE_FINISHED:
      return "finished";
    case RUN_STATE_STOPPED:
      return "stopped";
    case RUN_STATE_FAILED:
      return "failed";
    default:
      return "interrupted";
  }
}

Json LossList(const RunHistory& history, const ReportContext& context) {
  Json losses = Json::array();
  if (!context.losses.empty()) {
    for (const double loss : context.losses) losses.push_back(loss);
  } else {
    for (const auto& [step, row] : history.steps()) losses.push_back(row.loss());
  }
  return losses;
}

Json Boundaries(const RunHistory& history) {
  Json boundaries = Json::array();
  for (uint32_t c = 0; c < history.num_clusters(); ++c) {
    for (uint32_t i = 0; i < history.num_boundaries(c); ++i) {
      Json row = {{"boundary", i},
                  {"cut", history.plan(c).stages(static_cast<int>(i) + 1).first_unit()},
                  {"forward", history.ForwardWireBytesPerToken(c, i)},
                  {"backward", history.BackwardWireBytesPerToken(c, i)}};
      if (history.num_clusters() > 1) row["cluster"] = c;
      boundaries.push_back(std::move(row));
    }
  }
  return boundaries;
}

// Of stage 0: the version rule gives every stage the same.
Json StalenessHistogram(const RunHistory& history) {
  Json histogram = Json::object();
  if (const WorkerRow* worker = history.WorkerOfStage(0, 0); worker != nullptr) {
    const std::map<uint32_t, uint64_t> sorted(worker->counters().staleness().begin(),
                                              worker->counters().staleness().end());
    for (const auto& [lag, microbatches] : sorted) histogram[absl::StrCat(lag)] = microbatches;
  }
  return histogram;
}

Json Workers(const RunHistory& history) {
  Json workers = Json::array();
  for (const WorkerRow& worker : history.latest().workers()) {
    if (!worker.assigned()) continue;
    Json waiting = Json::object();
    const std::map<std::string, double> sorted(worker.counters().waiting_seconds().begin(),
                                               worker.counters().waiting_seconds().end());
    for (const auto& [reason, seconds] : sorted) waiting[reason] = seconds;
    Json rejected = Json::object();
    for (const auto& [reason, count] : worker.counters().rejected_frames()) rejected[reason] = count;
    Json row = {{"name", worker.name()},
                {"device", worker.device()},
                {"stage", worker.stage()},
                {"layers", {worker.first_unit(), worker.end_unit()}},
                {"parameters", worker.parameters()},
                {"resident_bytes", worker.counters().resident_bytes()},
                {"microbatch_seconds", worker.microbatch_seconds()},
                {"planned_microbatch_seconds", worker.planned_microbatch_seconds()},
                {"slow", worker.slow()},
                {"busy_seconds", worker.counters().busy_seconds()},
                {"waiting_seconds", waiting},
                {"rejected_frames", rejected}};
    if (history.num_clusters() > 1) row["cluster"] = worker.cluster();
    workers.push_back(std::move(row));
  }
  return workers;
}

// Only with several clusters.
Json Clusters(const RunHistory& history) {
  Json clusters = Json::array();
  for (const ClusterStatus& cluster : history.latest().clusters()) {
    Json members = Json::array(), cuts = Json::array();
    for (const StageAssignment& stage : cluster.plan().stages()) {
      members.push_back(stage.worker());
      if (stage.stage() > 0) cuts.push_back(stage.first_unit());
    }
    clusters.push_back({{"name", cluster.name()},
                        {"workers", members},
                        {"cuts", cuts},
                        {"steps", cluster.steps_done()},
                        {"loss", cluster.loss()},
                        {"tokens_per_second", cluster.tokens_per_second()},
                        {"predicted_tokens_per_second", cluster.plan().prediction().tokens_per_second()},
                        {"skipped_steps", cluster.skipped_steps()},
                        {"weight_hash", cluster.weight_hash()}});
  }
  return clusters;
}

// Only of clusters that average.
Json Averaging(const RunHistory& history) {
  const RunStatus& status = history.latest();
  const AveragingSpec& spec = status.record().spec().averaging();
  return {{"rounds", status.rounds()},
          {"every_steps", spec.every_steps()},
          {"delay_steps", spec.delay_steps()},
          {"wire", EnumText(AveragingWireCode_descriptor()->FindValueByNumber(spec.wire()))},
          {"outer", EnumText(OuterCode_descriptor()->FindValueByNumber(spec.outer()))},
          {"bytes_per_token", history.AveragingBytesPerToken()},
          {"round_seconds", status.round_seconds()},
          {"round_wait_seconds", status.round_wait_seconds()}};
}

Json Replans(const RunHistory& history) {
  Json replans = Json::array();
  for (const ReplanRow& row : history.latest().replans()) {
    replans.push_back({{"from_step", row.from_step()},
                       {"recomputed_steps", row.recomputed_steps()},
                       {"lost_worker", row.lost_worker()},
                       {"reason", row.reason()}});
  }
  return replans;
}

}  // namespace

Json MakeRunReport(const RunHistory& history, const ReportContext& context) {
  const RunStatus& status = history.latest();
  const RunRecord& record = status.record();
  const Prediction& prediction = status.plan().prediction();
  const uint32_t m = record.spec().schedule().microbatches();
  // The last entry holds for the main part of the run; those before it are the synchronous warm-up.
  const uint32_t j = record.j_table().empty() ? 0 : record.j_table(record.j_table_size() - 1).j();
  Json skipped = Json::array();
  for (const auto& [step, row] : history.steps()) {
    if (row.skip()) skipped.push_back(step);
  }
  Json evaluations = Json::array();
  for (const auto& [steps, row] : history.evaluations())
    evaluations.push_back({{"steps", steps}, {"loss", row.loss()}});
  const double bigram = record.bigram_loss();
  Json report;
  report["run"] = status.run();
  report["state"] = StateName(status.state());
  report["error"] = !context.error.empty()               ? Json(context.error)
                    : status.state() == RUN_STATE_FAILED ? Json(status.detail())
                                                         : Json(nullptr);
  report["run_dir"] = context.run_dir;
  report["checkpoint_dir"] = status.checkpoint_dir();
  report["checkpoint_step"] = status.checkpoint_step();
  report["weight_hash"] = status.weight_hash();
  report["failed_checkpoints"] = status.failed_checkpoints();
  report["checkpoint_error"] = status.failed_checkpoints() > 0 ? Json(status.checkpoint_error()) : Json(nullptr);
  report["steps"] = status.steps_done();
  report["first_step"] = status.first_step();
  report["tokens"] = status.steps_done() * history.TokensPerStep();
  report["seconds"] = status.elapsed_seconds();
  report["loss"] = LossList(history, context);
  report["evaluations"] = evaluations;
  report["validation_loss"] = OrNull(history.ValidationLoss());
  report["bigram_loss"] = bigram > 0 ? Json(bigram) : Json(nullptr);
  report["tokens_per_second"] = status.tokens_per_second();
  report["predicted_tokens_per_second"] = history.PredictedTokensPerSecond();
  report["compute_bound_tokens_per_second"] = history.ComputeBoundTokensPerSecond();
  report["bottleneck"] = prediction.bottleneck();
  report["links"] = context.link_profile;
  report["microbatches_per_step"] = m;
  report["j"] = j;
  report["window"] = prediction.window();
  report["phi"] = m == 0 ? 0.0 : static_cast<double>(j) / m;
  report["staleness_histogram"] = StalenessHistogram(history);
  report["wire_bytes_per_token"] = Boundaries(history);
  report["dense_bf16_bytes_per_token"] = 2 * record.spec().model().width();
  report["coordinator_tensor_bytes"] = status.coordinator_tensor_bytes();
  report["coordinator_received_bytes"] = status.coordinator_received_bytes();
  report["skipped_steps"] = status.skipped_steps();
  report["skipped"] = skipped;
  report["recomputed_steps"] = history.RecomputedSteps();
  report["replans"] = Replans(history);
  report["workers"] = Workers(history);
  if (!status.clusters().empty()) report["clusters"] = Clusters(history);
  if (record.spec().averaging().wire() != AVERAGING_WIRE_UNSPECIFIED) report["averaging"] = Averaging(history);
  report["plan"] = Json(history.PlanLines());
  return report;
}

absl::Status CheckWritable(const std::string& flag, const std::string& path) {
  const std::string part = path + ".part";
  const bool writable = !std::filesystem::is_directory(path) && std::ofstream(part, std::ios::binary).is_open();
  std::error_code ignored;
  if (writable) std::filesystem::remove(part, ignored);
  return writable ? absl::OkStatus()
                  : absl::InvalidArgumentError(absl::StrCat(
                        flag, ": cannot write ", path, "; give a file in a folder that is there and may be written"));
}

absl::Status WriteJsonFile(const std::string& path, const Json& json) {
  // Strings of other processes may hold broken UTF-8: replaced instead of thrown about.
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (!file.fail()) std::filesystem::rename(part, path, error);
  if (file.fail() || error) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, "; is there space, and may you write there?"));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
