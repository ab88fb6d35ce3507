#include "coordinator/service/measurements.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

std::string MemoryOf(const WorkerDescription& worker) { return absl::StrCat(worker.host, "/", worker.device); }

}  // namespace

std::map<std::string, uint64_t> TenantsOfMemory(const Measurements& measured) {
  std::map<std::string, uint64_t> tenants;
  for (const WorkerDescription& worker : measured.workers) ++tenants[MemoryOf(worker)];
  return tenants;
}

uint64_t StageMemoryLimit(const WorkerDescription& worker, const std::map<std::string, uint64_t>& tenants) {
  const uint64_t share = worker.memory_limit_bytes / tenants.at(MemoryOf(worker));
  if (worker.memory_cap_bytes == 0) return share;
  return share == 0 ? worker.memory_cap_bytes : std::min(share, worker.memory_cap_bytes);
}

}  // namespace stagecoach
