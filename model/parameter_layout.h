// Which parameters a range of units has: names, order, shapes, places in the flat buffer, first values. One table, so
// that every stage, the optimizer, checkpoints and the oracle agree; independent of where the model is cut.
//
// Linear weights are stored (out, in) and used as y = x W^T: rows belong to outputs. Matrices that write the subspace
// (attention.o, feedforward.down of constrained blocks) are the factors Z with out = rank.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "model/stage_model.h"

namespace stagecoach {

struct LayoutEntry {
  ParameterInfo info;
  double initial_value = 0;      // of every element when initial_deviation is 0
  double initial_deviation = 0;  // standard deviation of N(0, s^2)
  uint64_t rng_stream = 0;       // of RngPurpose::kInit: unit and number within the unit
};

// Blocks 1..layers-tail_layers write only the subspace.
inline bool IsConstrainedBlock(const ModelConfig& config, uint32_t unit) {
  return config.compression == Compression::kSubspace && unit >= 1 &&
         static_cast<int64_t>(unit) <= config.layers - config.tail_layers;
}

// Units [first_unit, end_unit) in canonical order. Offsets are multiples of 16 floats.
std::vector<LayoutEntry> ParameterLayout(const ModelConfig& config, uint32_t first_unit, uint32_t end_unit);

}  // namespace stagecoach
