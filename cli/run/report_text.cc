// The report as a page for people.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run/run_report.h"

namespace stagecoach {
namespace {

using Json = nlohmann::ordered_json;

std::string Number(const Json& value, absl::string_view unit = "", int digits = 4) {
  if (!value.is_number()) return "not measured";
  return absl::StrCat(absl::StrFormat("%.*f", digits, value.get<double>()), unit);
}

void AppendLosses(const Json& report, std::string* text) {
  const Json& losses = report["loss"];
  absl::StrAppend(text, "  train loss       ", losses.empty() ? "none" : Number(losses.back()),
                  losses.size() > 1 ? absl::StrCat("  (first step ", Number(losses.front()), ")") : "", "\n");
  absl::StrAppend(text, "  validation loss  ", Number(report["validation_loss"]));
  if (report["bigram_loss"].is_number()) {
    absl::StrAppend(text, "  (bigram model of the same text: ", Number(report["bigram_loss"]));
    if (report["validation_loss"].is_number()) {
      const bool beaten = report["validation_loss"].get<double>() < report["bigram_loss"].get<double>();
      absl::StrAppend(text, beaten ? ", beaten" : ", not beaten yet: train longer");
    }
    absl::StrAppend(text, ")");
  }
  absl::StrAppend(text, "\n");
}

void AppendSpeed(const Json& report, std::string* text) {
  const double rate = report["tokens_per_second"], predicted = report["predicted_tokens_per_second"];
  const double ideal = report["compute_bound_tokens_per_second"];
  absl::StrAppendFormat(text, "  speed            %.0f tokens/s; predicted %.0f", rate, predicted);
  if (ideal > 0) absl::StrAppendFormat(text, "; %.1f %% of the ideal %.0f without links", 100 * rate / ideal, ideal);
  absl::StrAppend(text, "\n");
  absl::StrAppendFormat(text, "  schedule         M %d, J %d, phi %.3f, N %d; lag in steps -> microbatches %s\n",
                        report["microbatches_per_step"].get<int64_t>(), report["j"].get<int64_t>(),
                        report["phi"].get<double>(), report["window"].get<int64_t>(),
                        report["staleness_histogram"].dump());
}

void AppendWire(const Json& report, std::string* text) {
  const double dense = report["dense_bf16_bytes_per_token"];
  for (const Json& boundary : report["wire_bytes_per_token"]) {
    const double forward = boundary["forward"], backward = boundary["backward"];
    const std::string name = boundary.contains("cluster") ? absl::StrCat(boundary["cluster"].dump(), ".") : "";
    absl::StrAppendFormat(text, "  boundary %-8s%.1f B/token forward, %.1f backward; dense bf16 %.0f",
                          absl::StrCat(name, boundary["boundary"].dump()), forward, backward, dense);
    if (forward + backward > 0) absl::StrAppendFormat(text, " (%.1f times as much)", 2 * dense / (forward + backward));
    absl::StrAppend(text, "\n");
  }
  absl::StrAppend(text, "  coordinator      saw ", report["coordinator_tensor_bytes"].dump(), " tensor bytes\n");
}

void AppendClusters(const Json& report, std::string* text) {
  if (!report.contains("clusters")) return;
  for (const Json& cluster : report["clusters"]) {
    std::string members;
    for (const Json& worker : cluster["workers"]) absl::StrAppend(&members, " ", worker.get<std::string>());
    absl::StrAppendFormat(text, "  %-16s %d steps, loss %.4f, %.0f tokens/s (predicted %.0f); workers%s\n",
                          cluster["name"].get<std::string>(), cluster["steps"].get<uint64_t>(),
                          cluster["loss"].get<double>(), cluster["tokens_per_second"].get<double>(),
                          cluster["predicted_tokens_per_second"].get<double>(), members);
  }
}

void AppendAveraging(const Json& report, std::string* text) {
  if (!report.contains("averaging")) return;
  const Json& averaging = report["averaging"];
  absl::StrAppendFormat(
      text,
      "  averaging        %d rounds, every %d steps, entering %d later; %s, %s; %.1f B/token; a round "
      "%.2f s, after %.2f s for the last cluster\n",
      averaging["rounds"].get<uint64_t>(), averaging["every_steps"].get<uint64_t>(),
      averaging["delay_steps"].get<uint64_t>(), averaging["wire"].get<std::string>(),
      averaging["outer"].get<std::string>(), averaging["bytes_per_token"].get<double>(),
      averaging["round_seconds"].get<double>(), averaging["round_wait_seconds"].get<double>());
}

void AppendWorkers(const Json& report, std::string* text) {
  for (const Json& worker : report["workers"]) {
    std::string waiting;
    for (const auto& [reason, seconds] : worker["waiting_seconds"].items()) {
      absl::StrAppendFormat(&waiting, " %s %.1f s", reason, seconds.get<double>());
    }
    const std::string speed = absl::StrFormat(
        "%.1f ms a microbatch (plan %.1f)%s", worker["microbatch_seconds"].get<double>() * 1e3,
        worker["planned_microbatch_seconds"].get<double>() * 1e3, worker["slow"].get<bool>() ? ", slow" : "");
    absl::StrAppendFormat(
        text, "  worker %-8s  %sstage %d, units %d-%d, %.2f M parameters, %.0f MiB; %s; busy %.1f s; waited%s\n",
        worker["name"].get<std::string>(),
        worker.contains("cluster") ? absl::StrCat("cluster ", worker["cluster"].dump(), ", ") : "",
        worker["stage"].get<int>(), worker["layers"][0].get<int>(), worker["layers"][1].get<int>() - 1,
        worker["parameters"].get<double>() / 1e6, worker["resident_bytes"].get<double>() / (1 << 20), speed,
        worker["busy_seconds"].get<double>(), waiting.empty() ? " not at all" : waiting);
  }
}

}  // namespace

std::string FormatRunReport(const Json& report) {
  std::string text =
      absl::StrFormat("\nRun %s %s after %d steps, %d tokens, %.1f s\n", report["run"].get<std::string>(),
                      report["state"].get<std::string>(), report["steps"].get<uint64_t>(),
                      report["tokens"].get<uint64_t>(), report["seconds"].get<double>());
  AppendLosses(report, &text);
  AppendSpeed(report, &text);
  AppendWire(report, &text);
  AppendClusters(report, &text);
  AppendAveraging(report, &text);
  AppendWorkers(report, &text);
  for (const Json& replan : report["replans"]) {
    absl::StrAppend(&text, "  planned anew     from step ", replan["from_step"].dump(), ", ",
                    replan["recomputed_steps"].dump(), " steps done again: ", replan["reason"].get<std::string>(),
                    "\n");
  }
  if (report["skipped_steps"] != 0) absl::StrAppend(&text, "  skipped steps    ", report["skipped"].dump(), "\n");
  const std::string hash = report["weight_hash"], checkpoint = report["checkpoint_dir"];
  if (!hash.empty()) absl::StrAppend(&text, "  weight hash      ", hash, "\n");
  if (report["failed_checkpoints"] != 0) {
    absl::StrAppend(&text, "  not written      ", report["failed_checkpoints"].dump(),
                    " checkpoints; the newest: ", report["checkpoint_error"].get<std::string>(), "\n");
  }
  if (!checkpoint.empty()) absl::StrAppend(&text, "  checkpoint       ", checkpoint, "\n");
  absl::StrAppend(&text, "  run directory    ", report["run_dir"].get<std::string>(),
                  "  (record.json, report.json, logs/)\n");
  return text;
}

}  // namespace stagecoach
