// What the planner knows of a model and a fleet: measured or written down, never guessed silently.
//
// Units, kinds: unit 0 is the embedding, 1..L are blocks, L+1 is final norm, head and loss; units of one kind cost the
// same (embedding, block, tail block, head). Rates are bytes per second, times are seconds, memory is bytes.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/domain/stage_memory.h"

namespace stagecoach {

struct PlanUnit {
  uint32_t kind = 0;
  uint64_t parameters = 0;
  uint64_t activation_bytes = 0;  // of one microbatch, all that the backward pass needs
  uint32_t optimizer_bytes = 8;   // moments, a parameter
};

struct PlanModel {
  std::vector<std::string> kinds;  // names, for people
  std::vector<PlanUnit> units;
  std::vector<bool> cut_allowed;  // in front of unit u; size = units; [0] is ignored
  double frame_bytes = 0;         // of one boundary and microbatch, each direction
  double tokens_per_microbatch = 0;
  uint32_t microbatches = 1;                                         // M of a step
  bool synchronous = false;                                          // J = 0
  double steps_per_round = std::numeric_limits<double>::infinity();  // H; infinite: clusters do not average
  double averaging_bytes = 1.03;                                     // on the wire, a parameter and direction
  StageMemoryRule memory;
};

// Forward and backward of one microbatch (recompute included), update of one step, through one unit of a kind.
struct KindSeconds {
  double forward = 0, backward = 0, update = 0;
};

struct FleetWorker {
  std::string name, host, region;
  std::vector<KindSeconds> kinds;                             // index: PlanUnit::kind
  uint64_t memory_bytes = 0;                                  // free for the stage; 0 = no limit known
  double up_bytes_per_second = 0, down_bytes_per_second = 0;  // 0 = not limited
  double failures_per_hour = 0;
  bool listens = true;  // others can dial it; two workers that both do not listen cannot be neighbours
};

struct FleetLink {
  double rtt_seconds = 0;
  double bytes_per_second = 0;  // 0 = not limited beyond the ends' own rates
  bool usable = true;
};

// links[{i, j}], directed, overrides regions[{region of i, region of j}]; what is in neither is unlimited and without
// delay.
struct Fleet {
  std::vector<FleetWorker> workers;
  std::map<std::pair<std::string, std::string>, FleetLink> regions;  // names of regions
  std::map<std::pair<uint32_t, uint32_t>, FleetLink> links;          // indices of workers
};

}  // namespace stagecoach
