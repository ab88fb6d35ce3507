// What was measured before a run is planned.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
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

// Workers whose stages lie in one memory: host/device -> how many.
std::map<std::string, uint64_t> TenantsOfMemory(const Measurements& measured);

// What a worker's stage may use: an even share of what is free where it lies, within the worker's own cap.
uint64_t StageMemoryLimit(const WorkerDescription& worker, const std::map<std::string, uint64_t>& tenants);

}  // namespace stagecoach
