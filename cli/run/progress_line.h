// The line that shows how a run is doing: step, loss, tokens/s, % of ideal, bytes/token on the wire, time left.
//
// Threading: ProgressLine is pure; ProgressPrinter belongs to one thread.
#pragma once

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "cli/run/run_history.h"

namespace stagecoach {

// "step 40/200  loss 2.513  5210 tokens/s  96.1 % of ideal  71.9 B/token  1 min 2 s left"; before the first step the
// state and what it waits for.
std::string ProgressLine(const RunHistory& history);

// RUN_STATE_MEASURING -> "measuring".
std::string StateWord(RunState state);

// "1 h 2 min", "3 min 5 s", "12 s".
std::string FormatTimeLeft(absl::Duration left);

// Redraws one line on a terminal; elsewhere prints a line when something is new, every few seconds.
class ProgressPrinter {
 public:
  ProgressPrinter(std::FILE* out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}
  void Show(const RunHistory& history, absl::Time now);
  // The last line stays; what follows starts on a line of its own.
  void Finish(const RunHistory& history);
  // A line of its own above the live one.
  void Note(const std::string& text);

 private:
  void Draw(const std::string& line);
  std::FILE* const out_;
  const bool is_terminal_;
  bool drawn_ = false;
  absl::Time last_ = absl::InfinitePast();
  std::string last_line_;
};

}  // namespace stagecoach
