// What was measured before a run is planned.
//
// Threading: values.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/domain/membership.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

struct Measurements {
  std::vector<WorkerDescription> workers;  // in pipeline order, cluster after cluster
  std::vector<size_t> cluster_sizes;       // workers of each; empty: one cluster
  std::map<std::string, ProbeResult> probes;
  std::map<std::pair<std::string, std::string>, LinkResult> links;  // from, to
};

}  // namespace stagecoach
