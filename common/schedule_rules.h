// The rules of the pipeline that depend on indices only: which weights a microbatch uses, the order of items, windows.
// Shared by worker/domain, the oracle in model/ and the planner, because coordinator/ and worker/ never include each
// other. Formulas: docs/architecture.md, "Version rule".
//
// Threading: values; const methods are safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach {

// J of every step >= from_step until the next entry; sorted; the first one is at step 0.
struct JTableEntry {
  uint64_t from_step = 0;
  uint32_t j = 0;
};

// version(n) = max(version(n-1), floor((n - J_t) / M), 0), t = floor(n / M): one number for forward AND backward,
// the same at every stage.
class VersionRule {
 public:
  // Precondition: microbatches_per_step >= 1, table not empty and sorted, first entry at step 0.
  VersionRule(uint32_t microbatches_per_step, const std::vector<JTableEntry>& table);

  uint64_t VersionOf(uint64_t n) const;  // weights of microbatch n: W^(version)
  uint32_t microbatches_per_step() const { return m_; }
  uint32_t JOf(uint64_t step) const;
  uint64_t StepOf(uint64_t n) const { return n / m_; }
  // Largest lag t - version(n) of any step in the table: tau = max ceil(J/M).
  uint32_t MaxLag() const { return max_lag_; }

 private:
  struct Segment {
    uint64_t from_step, j, floor_version;  // floor_version: version of the last microbatch before the segment
  };
  uint32_t m_;
  std::vector<Segment> segments_;
  uint32_t max_lag_ = 0;
};

// One thing that crosses the pipeline: a training microbatch, or an evaluation microbatch that stands before
// microbatch n in the forward order. Items are numbered by `sequence` from the start of the run; both directions
// follow that order (the "backward" of an evaluation item returns its credit and computes nothing).
struct Item {
  uint64_t sequence = 0;
  uint64_t n = 0;
  bool is_evaluation = false;
  uint32_t evaluation = 0;  // index within its evaluation
  bool operator==(const Item&) const = default;
};

// Maps sequence <-> item. Evaluation after s steps (s = steps_done) holds `evaluation_microbatches` items that stand
// before n = s*M; it takes place for every s > 0 divisible by evaluation_every, and for s = total_steps.
class ItemOrder {
 public:
  ItemOrder(uint32_t microbatches_per_step, uint64_t total_steps, uint64_t evaluation_every,
            uint32_t evaluation_microbatches);

  Item At(uint64_t sequence) const;
  uint64_t SequenceOfMicrobatch(uint64_t n) const;
  // First sequence number of a run that starts (or resumes) with `steps_done` steps applied. Evaluation after
  // `steps_done` is on this side of the cut: it belongs to the life that did step steps_done-1, unless steps_done = 0.
  uint64_t FirstSequenceAfter(uint64_t steps_done) const;
  // One past the last item of a life that ends after `steps_done` steps (with the evaluation after it, if due).
  uint64_t EndSequence(uint64_t steps_done) const { return FirstSequenceAfter(steps_done); }
  bool EvaluationDue(uint64_t steps_done) const;

 private:
  uint64_t m_, total_steps_, every_, evaluations_;
};

// N_i = ceil(L_i / t*) + ceil((P - i) / 2): Little's law and an empirical reserve for jitter and unequal stages.
uint32_t WindowOf(double loop_seconds_from_stage, double microbatch_seconds, uint32_t stage, uint32_t num_stages);

// Efficiency of the synchronous schedule: M t* / (M t* + L - t* + t_opt).
double SynchronousEfficiency(uint32_t microbatches_per_step, double microbatch_seconds, double loop_seconds,
                             double update_seconds);

// J by the rule of docs/architecture.md: 0 if the synchronous efficiency is >= 0.95,
// else N + max(0, ceil(t_opt / t*) - 1).
uint32_t ChooseJ(uint32_t microbatches_per_step, uint32_t window, double microbatch_seconds, double loop_seconds,
                 double update_seconds);

}  // namespace stagecoach
