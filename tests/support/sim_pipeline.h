// Runs the stage cores of one pipeline in virtual time: links with rate, delay and jitter, compute lanes with given
// times, no threads and no sleeping. After every effect it checks what must always hold: buffers hold what the rule
// says, items come in order and once, mailboxes stay within their windows, checkpoints hold the right versions, nothing
// gets stuck.
//
// Weights and gradients are 64-bit hashes of everything that went into them, so that a result can be compared with
// SequentialWeights: the definition of the schedule, executed one microbatch after the other without the product's
// rule.
//
// Threading: one thread. Deterministic: the same case gives the same result.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/domain/stage_core.h"

namespace stagecoach {

// Values of weights: version -> hash, one map per stage.
using SimWeights = std::vector<std::map<uint64_t, uint64_t>>;

struct SimCase {
  std::vector<StageCoreConfig> stages;    // one per stage, consistent with each other
  std::vector<double> forward, backward;  // seconds of one microbatch, per stage
  double update = 0;                      // seconds
  double norms = 0;                       // seconds
  std::vector<double> delay;              // one way, per boundary
  std::vector<double> serialisation;      // seconds of a tensor frame, per boundary
  double jitter = 0;                      // up to this share of every duration is added
  uint64_t seed = 1;
  std::set<std::pair<uint64_t, uint32_t>> nan;  // (step, stage): its norms are not finite
  std::optional<double> stop_at;                // virtual time of RequestStop
  uint32_t send_queue_limit = 4;                // frames waiting for the line above which the sender is blocked
  SimWeights resumed_from;                      // what the checkpoint of first_step holds; empty: a new run
};

struct SimResult {
  std::string error;   // empty: everything held
  double seconds = 0;  // until the last stage finished
  double ideal = 0;    // t* of one microbatch times the training microbatches done, filling not counted
  uint64_t steps_done = 0;
  std::vector<double> clips;                          // of every step done in this life; -1 = skipped
  std::vector<uint64_t> checkpoints;                  // captured by every stage
  std::vector<std::map<uint64_t, uint32_t>> lags;     // of each step: lag in steps -> microbatches (stage 0)
  std::map<uint64_t, SimWeights> checkpoint_weights;  // by step, what every stage captured
};

SimResult RunSim(const SimCase& sim_case);

// Hash of every version 0..steps at every stage: a plain loop over microbatches. `tables`: J per stage, as
// (from step, J).
SimWeights SequentialWeights(const SimCase& sim_case, const std::vector<std::vector<JTableEntry>>& tables,
                             uint64_t steps);

}  // namespace stagecoach
