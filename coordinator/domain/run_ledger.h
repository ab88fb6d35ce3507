// The steps of all clusters of a run, and what they mean for the run as a whole: a step of the run is done when every
// cluster has done it; its loss is the mean over the clusters, and so are evaluations. In a run of one cluster
// everything is that cluster's.
//
// Also the ledger of the data: which microbatches each cluster was dealt for the steps that it has done, to compare
// with what its workers say they trained on.
//
// Threading: a value, confined to the coordinator loop. Errors: INVALID_ARGUMENT as StepLedger; DATA_LOSS: a worker
// trained on other data than its cluster was dealt.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/cluster_rules.h"
#include "common/data_tally.h"
#include "coordinator/domain/step_ledger.h"

namespace stagecoach {

// What a run starts from: one row for each cluster.
struct ClusterLedgerStart {
  ClusterSteps steps;
  std::vector<double> earlier_losses;
  std::vector<uint64_t> earlier_skipped;
};

class RunLedger {
 public:
  RunLedger(uint64_t first_step, uint32_t microbatches_per_step, std::vector<ClusterLedgerStart> clusters);

  void Start(MonoTime now);
  absl::Status OnLoss(MonoTime now, size_t cluster, uint64_t step, double loss);
  absl::Status OnScalar(MonoTime now, size_t cluster, uint64_t step, const StepScalarFact& scalar);
  // The run's loss after that many steps, once every cluster has reported its own.
  std::optional<double> OnEvaluation(size_t cluster, uint64_t after_step, double loss);

  // Of the run: done by every cluster. The clip is the smallest one, the square sum the largest one.
  const std::vector<CompletedStep>& completed() const { return completed_; }
  uint64_t first_step() const { return clusters_[0].ledger.first_step(); }
  uint64_t steps_done() const { return first_step() + completed_.size(); }
  std::vector<double> LossesUpTo(uint64_t steps) const;     // mean over the clusters
  std::vector<uint64_t> SkippedUpTo(uint64_t steps) const;  // by at least one cluster
  uint64_t num_skipped() const { return SkippedUpTo(UINT64_MAX).size(); }
  // The first cluster's that has one; empty if none has.
  std::string SkipVerdict() const;
  double StepsPerSecond() const;  // summed over the clusters
  double ElapsedSeconds(MonoTime now) const { return clusters_[0].ledger.ElapsedSeconds(now); }

  size_t num_clusters() const { return clusters_.size(); }
  const StepLedger& cluster(size_t index) const { return clusters_[index].ledger; }

  // What a worker of the cluster trained on in this life, when it has finished. Compared now if the steps of the
  // cluster are known up to there, else by CheckData.
  void OnConsumed(const std::string& worker, size_t cluster, uint64_t steps, const DataTally& tally);
  absl::Status CheckData() const;

 private:
  struct Cluster {
    ClusterSteps steps;
    StepLedger ledger;
    DataTally dealt;       // of the steps done in this life
    uint64_t tallied = 0;  // of ledger.completed()
  };
  struct Consumed {
    size_t cluster = 0;
    uint64_t steps = 0;
    DataTally tally;
  };
  void Advance(MonoTime now, size_t cluster);

  const uint32_t microbatches_per_step_;
  std::vector<Cluster> clusters_;
  std::vector<CompletedStep> completed_;
  MonoTime last_{0};
  std::map<uint64_t, std::map<size_t, double>> evaluations_;  // those that lack a cluster: at most a few steps
  std::map<std::string, Consumed> consumed_;
};

}  // namespace stagecoach
