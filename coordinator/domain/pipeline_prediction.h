// Speed of a pipeline from measured stages and links: cycle time, loop latency, windows, bottleneck
// (docs/architecture.md, "Prediction").
//
//   L_i = sum_{j>=i} (f_j + b_j) + sum_{links below i} (rtt + s_f + s_b)
//   t*  = max(f_i + b_i, work of a host / its cores, s_f, s_b)
//
// Workers of one host share its cores: t* >= sum (f+b)*threads / cores over them, and each operation takes up to
// threads/cores times longer, which lengthens L.
//
// Threading: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

struct StageCost {
  std::string worker, host;
  uint32_t cores = 1;  // of the host
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
};

struct LinkCost {
  double rtt_seconds = 0;
  double forward_bytes_per_second = 0, backward_bytes_per_second = 0;  // 0 = not limited
};

struct PipelineCosts {
  std::vector<StageCost> stages;
  std::vector<LinkCost> links;  // stages - 1, top to bottom
  double frame_bytes = 0;       // of one boundary and microbatch, each direction
  uint32_t threads = 1;
  // Stages of other clusters of the run: where they share a host with this one, they share its cores. They count as
  // doing microbatches at the same rate.
  std::vector<StageCost> neighbours;
};

struct PipelineSpeed {
  double microbatch_seconds = 0;        // t*
  double loop_seconds = 0;              // L
  double update_seconds = 0;            // t_opt of the slowest stage (or host)
  std::vector<double> loop_from_stage;  // L_i
  std::vector<double> stage_seconds;    // f_i + b_i, with the rivals for the host's cores
  std::vector<uint32_t> windows;        // N_i
  std::string bottleneck;
  bool host_bound = false;
};

PipelineSpeed PredictSpeed(const PipelineCosts& costs);
// The same without links.
PipelineSpeed PredictComputeBound(const PipelineCosts& costs);

}  // namespace stagecoach
