// The planner's simulator against the worker's own stage cores in virtual time: random pipelines run at the same rate.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

#include "common/counter_rng.h"
#include "coordinator/domain/simulation/pipeline_simulation.h"
#include "tests/support/sim_pipeline.h"

namespace stagecoach {
namespace {

class Draw {
 public:
  Draw(uint64_t seed, uint64_t index) : rng_(seed, RngPurpose::kTest, index) {}
  uint32_t Between(uint32_t low, uint32_t high) { return low + rng_.Word(next_++) % (high - low + 1); }
  double Uniform() { return rng_.Word(next_++) / 4294967296.0; }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

constexpr double kFrameBytes = 1e6;  // control frames then take next to nothing

struct Pair {
  SimCase cores;
  PipelineCase simulated;
};

Pair DrawPair(uint64_t seed, uint64_t index) {
  Draw draw(seed, index);
  const uint32_t p = draw.Between(1, 8), m = draw.Between(2, 16);
  Pair pair;
  pair.simulated.microbatches_per_step = m;
  pair.simulated.j = draw.Between(0, 2) == 0 ? 0 : draw.Between(1, 2 * m);
  pair.simulated.frame_bytes = kFrameBytes;
  pair.cores.update = 0.1 * draw.Uniform();
  pair.cores.send_queue_limit = 1000;  // the simulator knows no full send queues
  for (uint32_t i = 0; i < p; ++i) {
    StageCoreConfig core;
    core.stage = i;
    core.num_stages = p;
    core.window = draw.Between(1, 2 * p + 2);
    core.input_window = i == 0 ? 0 : pair.cores.stages[i - 1].window;
    core.rule = VersionRule(m, {{0, pair.simulated.j}});
    pair.cores.stages.push_back(core);
    pair.cores.forward.push_back(0.01 + 0.1 * draw.Uniform());
    pair.cores.backward.push_back(0.01 + 0.2 * draw.Uniform());
    pair.cores.delay.push_back(0.2 * draw.Uniform());
    pair.cores.serialisation.push_back(0.01 + 0.1 * draw.Uniform());
    pair.simulated.stages.push_back(
        {pair.cores.forward[i], pair.cores.backward[i], pair.cores.update, core.window, 0, 0});
    if (i + 1 == p) break;
    const double rate = kFrameBytes / pair.cores.serialisation[i];
    pair.simulated.links.push_back({pair.cores.delay[i], 0, rate, rate});
  }
  return pair;
}

double SecondsOfCores(SimCase sim, uint32_t m, uint64_t steps) {
  for (StageCoreConfig& core : sim.stages) {
    core.order = ItemOrder(m, steps, 0, 0);
    core.total_steps = core.end_step = steps;
  }
  const SimResult result = RunSim(sim);
  EXPECT_EQ(result.error, "");
  return result.seconds;
}

TEST(SimulatedSchedule, RandomPipelines_RunAtTheRateOfTheStageCores) {
  const char* given = std::getenv("STAGECOACH_TEST_SEED");
  const uint64_t seed = given == nullptr ? 20260202 : std::strtoull(given, nullptr, 10);
  std::cout << "seed " << seed << " (STAGECOACH_TEST_SEED)\n";
  constexpr uint64_t kWarmup = 10, kSteps = 40;
  double sum = 0, worst = 0;
  constexpr int kCases = 150;
  for (int index = 0; index < kCases; ++index) {
    Pair pair = DrawPair(seed, static_cast<uint64_t>(index));
    const uint32_t m = pair.simulated.microbatches_per_step;
    pair.simulated.warmup_steps = kWarmup;
    pair.simulated.steps = kSteps;
    // The difference of two lengths: without filling and draining.
    const double seconds = SecondsOfCores(pair.cores, m, kWarmup + kSteps) - SecondsOfCores(pair.cores, m, kWarmup);
    const double expected = static_cast<double>(kSteps * m) / seconds;
    const double error = std::abs(SimulatePipeline(pair.simulated).microbatches_per_second / expected - 1);
    EXPECT_LT(error, 0.03) << "case " << index;
    sum += error;
    worst = std::max(worst, error);
  }
  std::cout << kCases << " pipelines: mean difference " << sum / kCases << ", worst " << worst << "\n";
  EXPECT_LT(sum / kCases, 0.005);
}

}  // namespace
}  // namespace stagecoach
