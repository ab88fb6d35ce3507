// Arrays of random numbers made by the counter RNG: first weights, anchors, the matrix behind the basis, dropout masks.
// Only integer sums and one multiplication, so the bits are the same on every machine.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "common/counter_rng.h"

namespace stagecoach {

// Nearly Gaussian with deviation `deviation`: the sum of eight 16-bit integers (one block a value), centred and scaled.
void FillGaussian(const CounterRng& rng, double deviation, float* out, int64_t count);

// Row `row` of a table of anchors: mean 0, variance 1, range +-3.46. Value j is the sum of the four 16-bit integers in
// one half of block (row, j/2).
void FillAnchorRow(const CounterRng& rng, uint64_t row, int64_t width, float* out);

// 0 with the given probability, else 1/(1 - probability); element e uses word e of the blocks from first_block on.
void FillDropoutMask(const CounterRng& rng, uint64_t first_block, float probability, float* out, int64_t count);

}  // namespace stagecoach
