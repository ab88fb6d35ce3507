#include "tests/support/fleet_families.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "common/rng_draws.h"

namespace stagecoach::testing {
namespace {

constexpr double kMbit = 1e6 / 8, kGbit = 1e9 / 8;  // bytes a second
constexpr double kGigabyte = 1e9;
constexpr uint32_t kUnits = 26;

struct Machine {
  double speed = 1, memory = 0;  // of kUnitSeconds, bytes
  double up = 0, down = 0;       // bytes a second
};

FleetWorker WorkerOf(const Machine& machine, const std::string& region) {
  FleetWorker worker;
  worker.region = region;
  const double share = 1 / machine.speed;
  // Embedding, block and head are of one size in the synthetic model.
  worker.kinds.assign(3, {kUnitSeconds.forward * share, kUnitSeconds.backward * share, kUnitSeconds.update * share});
  worker.memory_bytes = static_cast<uint64_t>(machine.memory);
  worker.up_bytes_per_second = machine.up;
  worker.down_bytes_per_second = machine.down;
  return worker;
}

Machine AnyMachine(RngDraws* draws) {
  Machine machine;
  machine.speed = draws->LogBetween(1, 16);
  machine.memory = draws->Between(0.6, 5) * kGigabyte;
  machine.down = draws->LogBetween(50, 1000) * kMbit;
  machine.up = machine.down * draws->Between(0.15, 1);
  return machine;
}

void SetBoth(Fleet* fleet, const std::string& a, const std::string& b, double rtt_seconds, double bytes_per_second) {
  fleet->regions[{a, b}] = fleet->regions[{b, a}] = {rtt_seconds, bytes_per_second, true};
}

// Regions far from each other: 10 ms inside, 40 to 200 ms and 100 to 400 Mbit/s between two of them.
std::vector<std::string> SpreadRegions(uint32_t size, RngDraws* draws, Fleet* fleet) {
  const uint32_t count = size < 64 ? 3 : size < 5000 ? 4 : 20;
  std::vector<std::string> names;
  for (uint32_t r = 0; r < count; ++r) {
    names.push_back("region-" + std::to_string(r));
    SetBoth(fleet, names[r], names[r], 0.01, 0);
    for (uint32_t other = 0; other < r; ++other) {
      SetBoth(fleet, names[r], names[other], draws->Between(0.04, 0.2), draws->LogBetween(100, 400) * kMbit);
    }
  }
  return names;
}

void AddMixed(uint32_t size, RngDraws* draws, Fleet* fleet) {
  const std::vector<std::string> regions = SpreadRegions(size, draws, fleet);
  for (uint32_t i = 0; i < size; ++i) {
    fleet->workers.push_back(WorkerOf(AnyMachine(draws), regions[i % regions.size()]));
  }
}

void AddLan(const std::string& name, uint32_t size, RngDraws* draws, Fleet* fleet) {
  SetBoth(fleet, name, name, 0.0005, kGbit);
  for (uint32_t i = 0; i < size; ++i) {
    Machine machine = AnyMachine(draws);
    machine.up = machine.down = kGbit;
    fleet->workers.push_back(WorkerOf(machine, name));
  }
}

// Round trips in ms and Gbit/s between regions, as DT-FM measured them.
struct Measured {
  const char *a, *b;
  double ms, gbit;
};

// Case 3 has figures of its own.
constexpr Measured kUsa[] = {{"Virginia", "Oregon", 67, 1.15}, {"Virginia", "California", 59, 1.05},
                             {"Virginia", "Ohio", 11, 1.12},   {"Oregon", "California", 12, 1.25},
                             {"Oregon", "Ohio", 49, 1.10},     {"California", "Ohio", 52, 1.02}};
constexpr Measured kWorld[] = {
    {"Oregon", "Virginia", 67, 0.79},  {"Oregon", "Ohio", 49, 1.10},      {"Oregon", "Tokyo", 96, 0.523},
    {"Oregon", "Seoul", 124, 0.46},    {"Oregon", "London", 136, 0.42},   {"Oregon", "Frankfurt", 143, 0.404},
    {"Oregon", "Ireland", 124, 0.482}, {"Virginia", "Ohio", 11, 1.12},    {"Virginia", "Tokyo", 143, 0.524},
    {"Virginia", "Seoul", 172, 0.500}, {"Virginia", "London", 76, 1.16},  {"Virginia", "Frankfurt", 90, 1.02},
    {"Virginia", "Ireland", 67, 1.05}, {"Ohio", "Tokyo", 130, 0.694},     {"Ohio", "Seoul", 159, 0.529},
    {"Ohio", "London", 86, 1.05},      {"Ohio", "Frankfurt", 99, 0.799},  {"Ohio", "Ireland", 77, 1.14},
    {"Tokyo", "Seoul", 34, 1.10},      {"Tokyo", "London", 210, 0.366},   {"Tokyo", "Frankfurt", 223, 0.36},
    {"Tokyo", "Ireland", 199, 0.465},  {"Seoul", "London", 238, 0.342},   {"Seoul", "Frankfurt", 235, 0.358},
    {"Seoul", "Ireland", 228, 0.335},  {"London", "Frankfurt", 14, 1.14}, {"London", "Ireland", 12, 1.09},
    {"Frankfurt", "Ireland", 24, 1.08}};
constexpr Measured kUniversities[] = {{"Ohio", "Virginia", 11, 1.12}};

// Equal GPUs, 16 GB and a 10 Gbit/s port each, spread evenly over the regions that `rows` name.
template <size_t num_rows>
void AddDtfm(const Measured (&rows)[num_rows], double inside_ms, double inside_gbit, uint32_t size, Fleet* fleet) {
  std::vector<std::string> regions;
  const auto add = [&](const char* name) {
    if (std::find(regions.begin(), regions.end(), name) == regions.end()) regions.push_back(name);
  };
  for (const Measured& row : rows) {
    add(row.a);
    add(row.b);
    SetBoth(fleet, row.a, row.b, row.ms / 1e3, row.gbit * kGbit);
  }
  for (const std::string& region : regions) SetBoth(fleet, region, region, inside_ms / 1e3, inside_gbit * kGbit);
  for (uint32_t i = 0; i < size; ++i) {
    fleet->workers.push_back(
        WorkerOf({16, 16 * kGigabyte, 10 * kGbit, 10 * kGbit}, regions[size_t{i} * regions.size() / size]));
  }
}

void AddHomes(uint32_t size, RngDraws* draws, Fleet* fleet) {
  const std::vector<std::string> regions = SpreadRegions(size, draws, fleet);
  for (uint32_t i = 0; i < size; ++i) {
    Machine machine = AnyMachine(draws);
    machine.up = draws->Between(10, 40) * kMbit;
    machine.down = draws->Between(100, 500) * kMbit;
    fleet->workers.push_back(WorkerOf(machine, regions[i % regions.size()]));
  }
}

void AddFewSlow(uint32_t size, Fleet* fleet) {
  const uint32_t slow = std::max(1u, size / 11);
  SetBoth(fleet, "site", "site", 0.005, 0);
  for (uint32_t i = 0; i < size; ++i) {
    const Machine machine = i < slow ? Machine{0.5, 3 * kGigabyte, 20 * kMbit, 20 * kMbit}
                                     : Machine{8, 3 * kGigabyte, 200 * kMbit, 200 * kMbit};
    fleet->workers.push_back(WorkerOf(machine, "site"));
  }
}

}  // namespace

std::vector<FleetFamily> AllFleetFamilies() {
  return {FleetFamily::kMixed,     FleetFamily::kLan,          FleetFamily::kTwoCampuses, FleetFamily::kDtfmCase2,
          FleetFamily::kDtfmCase3, FleetFamily::kDtfmCase4,    FleetFamily::kHomeUplinks, FleetFamily::kOneBadApple,
          FleetFamily::kFewSlow,   FleetFamily::kHalfBehindNat};
}

const char* FamilyName(FleetFamily family) {
  switch (family) {
    case FleetFamily::kMixed:
      return "mixed";
    case FleetFamily::kLan:
      return "lan";
    case FleetFamily::kTwoCampuses:
      return "two-campuses";
    case FleetFamily::kDtfmCase2:
      return "dtfm-case-2";
    case FleetFamily::kDtfmCase3:
      return "dtfm-case-3";
    case FleetFamily::kDtfmCase4:
      return "dtfm-case-4";
    case FleetFamily::kHomeUplinks:
      return "home-uplinks";
    case FleetFamily::kOneBadApple:
      return "one-bad-apple";
    case FleetFamily::kFewSlow:
      return "few-slow";
    case FleetFamily::kHalfBehindNat:
      return "half-behind-nat";
  }
  return "";
}

Fleet FamilyFleet(FleetFamily family, uint32_t size, uint64_t seed) {
  RngDraws draws(seed, RngPurpose::kTest, static_cast<uint64_t>(family));
  Fleet fleet;
  switch (family) {
    case FleetFamily::kMixed:
      AddMixed(size, &draws, &fleet);
      break;
    case FleetFamily::kLan:
      AddLan("lan", size, &draws, &fleet);
      break;
    case FleetFamily::kTwoCampuses:
      AddLan("north", size / 2, &draws, &fleet);
      AddLan("south", size - size / 2, &draws, &fleet);
      SetBoth(&fleet, "north", "south", 0.08, 50 * kMbit);
      break;
    case FleetFamily::kDtfmCase2:
      AddDtfm(kUniversities, 1, 5, size, &fleet);
      break;
    case FleetFamily::kDtfmCase3:
      AddDtfm(kUsa, 5, 2, size, &fleet);
      break;
    case FleetFamily::kDtfmCase4:
      AddDtfm(kWorld, 5, 2, size, &fleet);
      break;
    case FleetFamily::kHomeUplinks:
      AddHomes(size, &draws, &fleet);
      break;
    case FleetFamily::kOneBadApple:
      AddLan("lan", size - 1, &draws, &fleet);
      fleet.workers.push_back(WorkerOf({0.1, 0.6 * kGigabyte, 2 * kMbit, 10 * kMbit}, "lan"));
      break;
    case FleetFamily::kFewSlow:
      AddFewSlow(size, &fleet);
      break;
    case FleetFamily::kHalfBehindNat:
      AddMixed(size, &draws, &fleet);
      for (uint32_t i = 0; i < size / 2; ++i) fleet.workers[i].listens = false;
      break;
  }
  draws.Shuffle(&fleet.workers);
  for (uint32_t i = 0; i < size; ++i) {
    char name[16];
    std::snprintf(name, sizeof name, "w%05u", i);
    fleet.workers[i].name = fleet.workers[i].host = name;
  }
  return fleet;
}

PlanModel SyntheticModel() {
  PlanModel model;
  model.kinds = {"embedding", "block", "head"};
  for (uint32_t u = 0; u < kUnits; ++u) {
    PlanUnit unit;
    unit.kind = u == 0 ? 0 : u + 1 == kUnits ? 2 : 1;
    unit.parameters = 350'000'000 / kUnits;
    unit.activation_bytes = 40'000'000;
    unit.optimizer_bytes = 4;
    model.units.push_back(unit);
  }
  model.cut_allowed.assign(kUnits, true);
  model.tokens_per_microbatch = 2048;
  model.frame_bytes = 2048 * 1024 * 2;
  model.microbatches = 16;
  model.steps_per_round = 4;
  return model;
}

}  // namespace stagecoach::testing
