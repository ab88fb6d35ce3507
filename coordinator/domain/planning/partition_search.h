// The best division of a few workers into clusters: set partition over the table of all subsets.
//
//   F[S] = max( F[S \ low],  max over X in S with low in X of  g(X) + F[S \ X] )      low: the lowest worker of S
//
// g(X) is first what no cluster of X exceeds (its bottleneck and its least latency apart); where a division uses X,
// g(X) becomes what the best chain of X really does, until a division is made of such sets alone. 3^n steps each time.
//
// Threading: one thread; the cost model must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coordinator/domain/planning/cost_model.h"
#include "coordinator/domain/planning/subset_table.h"

namespace stagecoach {

struct Division {
  std::vector<ClusterDraft> clusters;
  double goodput = 0;  // sum, under the cost model's C
  double bound = 0;    // no division of these workers does more over the points tried
};

class PartitionSearch {
 public:
  // `workers`: at most 20, in the order that breaks ties.
  PartitionSearch(const CostModel& costs, std::vector<uint32_t> workers);

  // Exactly so many clusters, 0 = any number. No clusters if there is no such division.
  Division Best(uint32_t clusters);
  // No division does more. Cheap: nothing is looked at twice.
  double Bound() const { return Layers(0)[0].value.back(); }
  // The same for exactly c clusters, c = 0 .. as many as there can be.
  std::vector<double> Bounds() const;

 private:
  struct Layer {
    std::vector<double> value;   // by set
    std::vector<uint32_t> uses;  // the cluster of the lowest worker; 0: that worker is left out
  };
  void Refine();
  void SetUpperBound(uint32_t set);
  std::vector<Layer> Layers(uint32_t clusters) const;
  const ClusterDraft* Confirm(uint32_t set);
  std::optional<ClusterDraft> BestChain(uint32_t set) const;

  const CostModel& costs_;
  SubsetScope scope_;
  std::unique_ptr<SubsetTable> bottleneck_, loop_;  // loop_: once latency has turned out to count
  std::vector<double> goodput_;                     // by set: at most this, or exactly this where confirmed
  std::vector<uint8_t> confirmed_;
  std::vector<ClusterDraft> drafts_;  // confirmed
  std::vector<uint32_t> draft_of_;    // by set, index in drafts_
};

}  // namespace stagecoach
