// Everything that a watcher has learned about a run: the newest status, and the rows that each message adds.
//
// Threading: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

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
  uint32_t num_clusters() const;
  uint64_t TokensPerStep() const;     // of all clusters together; 0 before the plan is known
  uint64_t TokensTrained() const;     // with the newest plan of this life of the run, as counters count
  uint64_t RecomputedSteps() const;   // in this life, because of further plans
  uint64_t EvaluationTokens() const;  // sent forward for evaluations in this life, by one cluster
  const Plan& plan(uint32_t cluster) const;
  // Sent across boundary `stage` -> `stage` + 1 of a cluster per token of that cluster, by the sockets' counters;
  // forward counts evaluation tokens too.
  double ForwardWireBytesPerToken(uint32_t cluster, uint32_t stage) const;
  double BackwardWireBytesPerToken(uint32_t cluster, uint32_t stage) const;
  // Payload of rounds sent by all workers, per token of all clusters.
  double AveragingBytesPerToken() const;
  uint32_t num_boundaries(uint32_t cluster) const;
  // Tokens a second that the plans of all clusters promise, and what they would without links.
  double PredictedTokensPerSecond() const;
  double ComputeBoundTokensPerSecond() const;
  // The explanations of all plans; with several clusters each line begins with the cluster's name.
  std::vector<std::string> PlanLines() const;
  // Null if no worker has the stage.
  const WorkerRow* WorkerOfStage(uint32_t cluster, uint32_t stage) const;

 private:
  bool empty_ = true;
  RunStatus latest_;
  std::map<uint64_t, StepRow> steps_;
  std::map<uint64_t, EvaluationRow> evaluations_;
};

}  // namespace stagecoach
