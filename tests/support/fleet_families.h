// Fleets and a model to plan with: families of networks that the planner must handle, of any size, by seed.
//
// The order of registration is shuffled and names follow it, so that neither order nor name says where a worker is.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/domain/planning/fleet_facts.h"

namespace stagecoach::testing {

enum class FleetFamily {
  kMixed,          // speeds 1 to 16, downlinks 50 to 1,000 Mbit/s, uplinks 15 to 100 % of them, several regions
  kLan,            // the same machines at 1 Gbit/s
  kTwoCampuses,    // 1 Gbit/s inside, 50 Mbit/s and 80 ms between
  kDtfmCase2,      // equal GPUs of two universities; this and the next two: DT-FM's published networks
  kDtfmCase3,      // equal GPUs in four regions of the USA
  kDtfmCase4,      // equal GPUs in eight regions of the world
  kHomeUplinks,    // 10 to 40 Mbit/s up, 100 to 500 down
  kOneBadApple,    // one worker of a LAN is slow in everything
  kFewSlow,        // of 22, 20 fast and 2 slow
  kHalfBehindNat,  // kMixed, half of the workers cannot be dialled
};

// In the order above.
std::vector<FleetFamily> AllFleetFamilies();
const char* FamilyName(FleetFamily family);

// `size` > 0 workers with times of the kinds of SyntheticModel().
Fleet FamilyFleet(FleetFamily family, uint32_t size, uint64_t seed);

// 26 equal units (an embedding, 24 blocks, a head), 1.4 GB of parameters that need 5.6 GB where weights are at most one
// step old, frames of 4.2 MB, averaging every 64 microbatches.
PlanModel SyntheticModel();

// Of a synthetic unit on a worker of speed 1.
inline constexpr KindSeconds kUnitSeconds = {0.07, 0.21, 0.1};

}  // namespace stagecoach::testing
