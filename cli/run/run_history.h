// Everything that a watcher has learned about a run: the newest status, and the rows that each message adds.
//
// Threading: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "protos/coordinator.pb.h"

namespace stagecoach {

class RunHistory {
 public:
  void Add(const RunStatus& status);

  bool empty() const { return empty_; }
  const RunStatus& latest() const { return latest_; }
  // By step; a later row replaces an earlier one.
  const std::map<uint64_t, StepRow>& steps() const { return steps_; }
  // By steps done.
  const std::map<uint64_t, EvaluationRow>& evaluations() const { return evaluations_; }
  std::optional<double> LastLoss() const;
  std::optional<double> ValidationLoss() const;

  bool ended() const;
  uint64_t TokensPerStep() const;     // 0 before the plan is known
  uint64_t TokensTrained() const;     // in this life of the run
  uint64_t EvaluationTokens() const;  // sent forward for evaluations in this life
  // Sent across boundary `stage` -> `stage` + 1 per token, by the sockets' counters; forward counts evaluation tokens
  // too.
  double ForwardWireBytesPerToken(uint32_t stage) const;
  double BackwardWireBytesPerToken(uint32_t stage) const;
  uint32_t num_boundaries() const;
  // Null if no worker has the stage.
  const WorkerRow* WorkerOfStage(uint32_t stage) const;

 private:
  bool empty_ = true;
  RunStatus latest_;
  std::map<uint64_t, StepRow> steps_;
  std::map<uint64_t, EvaluationRow> evaluations_;
};

}  // namespace stagecoach
