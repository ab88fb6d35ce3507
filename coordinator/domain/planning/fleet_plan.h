// A division of a fleet: clusters, the order of their stages, their cuts, and why.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

struct PlannedStage {
  uint32_t worker = 0;  // index in Fleet::workers
  uint32_t first_unit = 0, end_unit = 0;
  double compute_seconds = 0, up_seconds = 0, down_seconds = 0;  // of a microbatch (comp_i, up_i, down_i)
  uint64_t memory_bytes = 0;
};

struct PlannedCluster {
  std::vector<PlannedStage> stages;  // in pipeline order
  double microbatch_seconds = 0;     // T_c
  double loop_seconds = 0;           // L_c
  uint32_t window = 1;               // N
  uint32_t j = 0;                    // J; of the run, chosen by its slowest cluster
  double phi = 0;                    // J / M: mean staleness in steps
  double goodput = 0;                // g_c: microbatches a second
  std::string bottleneck;            // "uplink of w7", "compute of w3", "link w3 -> w7", "loop latency"
};

// An unused worker that keeps a copy of a stage of the least reliable members.
struct PlannedStandby {
  uint32_t worker = 0;
  uint32_t protects = 0;
  double goodput = 0;  // microbatches a second that are expected to be saved
};

// What the fleet would do with another number of clusters.
struct ClusterCount {
  uint32_t clusters = 0;
  double goodput = 0;   // of the best plan found; 0: there is none
  std::string why_not;  // if there is none
};

struct FleetPlan {
  std::vector<PlannedCluster> clusters;    // by first worker's index
  std::vector<uint32_t> unused;            // workers, ascending; standbys are among them
  std::vector<PlannedStandby> standbys;    // by the worker that stands by
  double goodput = 0;                      // sum of g_c
  double bound = 0;                        // no plan does more microbatches a second
  bool exact = false;                      // proven best under the cost model
  std::vector<ClusterCount> other_counts;  // ascending; only where they were asked for (cluster_counts.h)
  std::vector<std::string> explanation;    // lines for people
};

}  // namespace stagecoach
