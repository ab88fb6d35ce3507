#include "cli/run/progress_line.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(250);  // as often as the coordinator sends
constexpr absl::Duration kPlainInterval = absl::Seconds(5);  // a log that people read afterwards

double WireBytesPerToken(const RunHistory& history) {
  uint32_t boundaries = 0;
  double sum = 0;
  for (uint32_t c = 0; c < history.num_clusters(); ++c) {
    for (uint32_t i = 0; i < history.num_boundaries(c); ++i, ++boundaries) {
      sum += history.ForwardWireBytesPerToken(c, i) + history.BackwardWireBytesPerToken(c, i);
    }
  }
  return boundaries == 0 ? 0 : sum / boundaries;
}

}  // namespace

std::string StateWord(RunState state) {
  const std::string name = RunState_Name(state);
  constexpr absl::string_view kPrefix = "RUN_STATE_";
  return absl::AsciiStrToLower(name.size() > kPrefix.size() ? name.substr(kPrefix.size()) : name);
}

std::string FormatTimeLeft(absl::Duration left) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(absl::Ceil(left, absl::Seconds(1))));
  if (seconds >= 3600) return absl::StrFormat("%d h %d min", seconds / 3600, seconds % 3600 / 60);
  if (seconds >= 60) return absl::StrFormat("%d min %d s", seconds / 60, seconds % 60);
  return absl::StrFormat("%d s", seconds);
}

std::string ProgressLine(const RunHistory& history) {
  const RunStatus& status = history.latest();
  const std::string state = StateWord(status.state());
  if (history.empty()) return "submitted";
  if (history.steps().empty()) {  // an error is shown once, at the end
    return status.detail().empty() || history.ended() ? state : absl::StrCat(state, ": ", status.detail());
  }
  const uint64_t total = status.record().spec().schedule().steps();
  std::string line = absl::StrFormat("step %d/%d", status.steps_done(), total);
  if (history.num_clusters() > 1) absl::StrAppend(&line, " in ", history.num_clusters(), " clusters");
  if (const auto loss = history.LastLoss(); loss.has_value()) absl::StrAppendFormat(&line, "  loss %.4f", *loss);
  if (const double rate = status.tokens_per_second(); rate > 0) {
    absl::StrAppendFormat(&line, "  %.0f tokens/s", rate);
    const double ideal = history.ComputeBoundTokensPerSecond();
    if (ideal > 0) absl::StrAppendFormat(&line, "  %.1f %% of ideal", 100 * rate / ideal);
    if (const double wire = WireBytesPerToken(history); wire > 0) absl::StrAppendFormat(&line, "  %.1f B/token", wire);
    if (!history.ended() && total > status.steps_done()) {
      const double tokens_left =
          static_cast<double>(total - status.steps_done()) * static_cast<double>(history.TokensPerStep());
      absl::StrAppend(&line, "  ", FormatTimeLeft(absl::Seconds(tokens_left / rate)), " left");
    }
  }
  if (status.state() != RUN_STATE_RUNNING) absl::StrAppend(&line, "  ", state);
  return line;
}

void ProgressPrinter::Show(const RunHistory& history, absl::Time now) {
  const std::string line = ProgressLine(history);
  if (is_terminal_) {
    if (now - last_ < kRedraw || line == last_line_) return;
    Draw(line);
  } else {
    // A change of the state is news at once; steps are news every few seconds.
    const bool same_kind = line.substr(0, 4) == last_line_.substr(0, 4);
    if (line == last_line_ || (same_kind && now - last_ < kPlainInterval)) return;
    std::fprintf(out_, "%s\n", line.c_str());
  }
  std::fflush(out_);
  last_ = now;
  last_line_ = line;
}

void ProgressPrinter::Draw(const std::string& line) {
  std::fprintf(out_, "\r\x1b[K%s", line.c_str());
  drawn_ = true;
}

void ProgressPrinter::Finish(const RunHistory& history) {
  const std::string line = ProgressLine(history);
  if (is_terminal_) {
    Draw(line);
    std::fprintf(out_, "\n");
    drawn_ = false;
  } else if (line != last_line_) {
    std::fprintf(out_, "%s\n", line.c_str());
  }
  std::fflush(out_);
}

void ProgressPrinter::Note(const std::string& text) {
  if (drawn_) std::fprintf(out_, "\r\x1b[K");
  drawn_ = false;
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

}  // namespace stagecoach
