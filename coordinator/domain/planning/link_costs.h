// Costs of the edge between two workers: rates, delay, whether they reach each other at all.
//
//   link = F / min(beta_ij, beta_ji)                       seconds a microbatch of the link itself
//   hop  = rtt + s_ij + s_ji                               what the edge adds to the loop latency
//   s_ij = F / min(up_i, down_j, beta_ij)
//
// Threading: immutable. Ownership: keeps no reference to the fleet.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/domain/planning/fleet_facts.h"

namespace stagecoach {

struct EdgeCost {
  double link_seconds = 0;  // infinite: the two cannot be neighbours
  double hop_seconds = 0;
};

class LinkCosts {
 public:
  LinkCosts(const Fleet& fleet, double frame_bytes);

  EdgeCost Between(uint32_t i, uint32_t j) const;
  // As written or measured: of the pair, else of the regions of its ends, else without limit and delay.
  const FleetLink& Directed(uint32_t i, uint32_t j) const;
  uint32_t region(uint32_t worker) const { return ends_[worker].region; }
  uint32_t num_regions() const { return num_regions_; }

 private:
  struct End {
    uint32_t region = 0;
    bool listens = true;
    double up = 0, down = 0;  // bytes a second, infinite if not limited
  };

  double frame_bytes_;
  uint32_t num_regions_ = 0;
  std::vector<End> ends_;
  std::vector<FleetLink> regions_;  // from * num_regions + to
  absl::flat_hash_map<uint64_t, FleetLink> links_;
};

}  // namespace stagecoach
