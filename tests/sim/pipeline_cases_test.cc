// Random pipelines in virtual time: no deadlock, no buffer read or written at the wrong time, mailboxes within their
// windows, exact clipping and skipping, complete checkpoints, clean stops, resumed runs that go on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "common/counter_rng.h"
#include "tests/support/sim_pipeline.h"

namespace stagecoach {
namespace {

uint64_t Seed() {
  const char* given = std::getenv("STAGECOACH_TEST_SEED");
  return given == nullptr ? 20260101 : std::strtoull(given, nullptr, 10);
}

uint32_t NumCases() {
  const char* given = std::getenv("STAGECOACH_SIM_CASES");
  return given == nullptr ? 10000 : static_cast<uint32_t>(std::atoi(given));
}

// Numbers of one case.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t index) : rng_(seed, RngPurpose::kTest, index) {}
  uint32_t Below(uint32_t limit) { return rng_.Word(next_++) % limit; }
  uint32_t Between(uint32_t low, uint32_t high) { return low + Below(high - low + 1); }
  double Uniform() { return rng_.Word(next_++) / 4294967296.0; }
  bool OneIn(uint32_t n) { return Below(n) == 0; }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

std::vector<JTableEntry> DrawTable(Draw& draw, uint32_t m, uint32_t steps) {
  std::vector<JTableEntry> table{{0, draw.OneIn(3) ? 0 : draw.Below(2 * m + 1)}};
  while (draw.OneIn(2) && table.back().from_step + 1 < steps) {
    table.push_back({table.back().from_step + draw.Between(1, 3), draw.Below(2 * m + 1)});
  }
  return table;
}

struct DrawnCase {
  SimCase sim;
  std::vector<std::vector<JTableEntry>> tables;  // of each stage, for the reference
};

DrawnCase DrawCase(uint64_t seed, uint64_t index) {
  Draw draw(seed, index);
  const uint32_t p = draw.Between(1, 8), m = draw.Between(1, 16), steps = draw.Between(1, 6);
  const bool pipedream = draw.OneIn(8), gpipe = !pipedream && draw.OneIn(8);
  const uint32_t evaluations = draw.OneIn(2) ? draw.Between(1, 3) : 0;
  const ItemOrder order(pipedream ? 1 : m, steps, draw.Below(4), evaluations);
  const auto table = gpipe ? std::vector<JTableEntry>{{0, 0}} : DrawTable(draw, m, steps);
  const uint64_t checkpoint_every = draw.Below(4);
  const auto scope = pipedream || draw.OneIn(6) ? ClipScope::kStage
                     : draw.OneIn(6)            ? ClipScope::kNone
                                                : ClipScope::kGlobal;
  DrawnCase drawn;
  SimCase& sim = drawn.sim;
  for (uint32_t i = 0; i < p; ++i) {
    drawn.tables.push_back(pipedream ? std::vector<JTableEntry>{{0, draw.Below(2 * (p - i))}} : table);
    StageCoreConfig core;
    core.stage = i;
    core.num_stages = p;
    core.window = gpipe ? m : draw.Between(1, 2 * p + 2);
    core.input_window = i == 0 ? 0 : sim.stages[i - 1].window;
    core.rule = VersionRule(pipedream ? 1 : m, drawn.tables.back());
    core.order = order;
    core.total_steps = core.end_step = steps;
    core.checkpoint_every = checkpoint_every;
    core.policy = gpipe ? StagePolicy::kForwardsFirst : StagePolicy::kAlternate;
    core.clip_scope = scope;
    core.clip_norm = 0.3 + draw.Uniform();
    if (i > 0) core.clip_norm = sim.stages[0].clip_norm;
    sim.stages.push_back(core);
    sim.forward.push_back(0.01 + 0.1 * draw.Uniform());
    sim.backward.push_back(0.01 + 0.2 * draw.Uniform());
    sim.delay.push_back(0.2 * draw.Uniform());
    sim.serialisation.push_back(0.1 * draw.Uniform());
    if (draw.OneIn(8)) sim.nan.insert({draw.Below(steps), i});
  }
  sim.update = 0.1 * draw.Uniform();
  sim.jitter = draw.OneIn(2) ? draw.Uniform() : 0;
  sim.seed = seed + index;
  sim.send_queue_limit = draw.Below(6);
  if (draw.OneIn(3)) sim.stop_at = 3.0 * steps * draw.Uniform();
  return drawn;
}

// Every version that a checkpoint holds has the bits of the sequential loop; the last one always exists.
std::string Differences(const SimResult& result, const SimWeights& reference) {
  if (!result.error.empty()) return result.error;
  for (const auto& [step, stages] : result.checkpoint_weights) {
    for (size_t i = 0; i < stages.size(); ++i) {
      for (const auto& [version, value] : stages[i]) {
        if (reference[i].at(version) != value) {
          return absl::StrCat("checkpoint ", step, " stage ", i, " version ", version, " differs from the reference");
        }
      }
    }
  }
  return "";
}

// The run goes on from what its checkpoint of `step` holds, with other windows.
SimCase ResumedAt(SimCase sim, const SimResult& result, uint64_t step) {
  sim.stop_at.reset();
  sim.resumed_from = result.checkpoint_weights.at(step);
  for (uint32_t i = 0; i < sim.stages.size(); ++i) {
    sim.stages[i].first_step = step;
    if (sim.stages[i].policy == StagePolicy::kAlternate) sim.stages[i].window = sim.stages[i].window % 5 + 1;
    sim.stages[i].input_window = i == 0 ? 0 : sim.stages[i - 1].window;
  }
  return sim;
}

TEST(SimPipeline, RandomCases_HoldEveryInvariant) {
  const uint64_t seed = Seed();
  std::cout << "seed " << seed << " (STAGECOACH_TEST_SEED)\n";
  uint32_t stopped = 0, resumed = 0;
  for (uint32_t index = 0; index < NumCases(); ++index) {
    const DrawnCase drawn = DrawCase(seed, index);
    const uint64_t total = drawn.sim.stages[0].total_steps;
    const SimWeights reference = SequentialWeights(drawn.sim, drawn.tables, total);
    const SimResult result = RunSim(drawn.sim);
    ASSERT_EQ(Differences(result, reference), "") << "case " << index;
    if (!drawn.sim.stop_at) {
      ASSERT_EQ(result.steps_done, total) << "case " << index;
    }
    ASSERT_FALSE(result.checkpoints.empty()) << "case " << index;
    ASSERT_EQ(result.checkpoints.back(), result.steps_done) << "case " << index;
    stopped += result.steps_done < total;
    // From any of its checkpoints (after a clean stop, or after a crash later on) the rest has the same bits.
    const uint64_t step = result.checkpoints[index % result.checkpoints.size()];
    if (step == total || step == 0) continue;
    ++resumed;
    const SimResult rest = RunSim(ResumedAt(drawn.sim, result, step));
    ASSERT_EQ(Differences(rest, reference), "") << "case " << index << " resumed at step " << step;
    ASSERT_EQ(rest.checkpoints.back(), total) << "case " << index << " resumed at step " << step;
    ASSERT_EQ(step + rest.clips.size(), total) << "case " << index << " resumed at step " << step;
  }
  std::cout << NumCases() << " cases, " << stopped << " stopped early, " << resumed << " resumed\n";
  if (NumCases() >= 1000) {
    EXPECT_GT(stopped, NumCases() / 50) << "stops are hardly tried";
    EXPECT_GT(resumed, NumCases() / 20) << "resuming is hardly tried";
  }
}

// P equal stages, t* = 1, RTT given; returns throughput / ideal in steady state (two lengths, so that filling cancels).
double Efficiency(uint32_t p, uint32_t m, uint32_t j, double one_way, const std::vector<uint32_t>& windows) {
  double seconds[2];
  const uint32_t steps[2] = {10, 30};
  for (int run = 0; run < 2; ++run) {
    SimCase sim;
    for (uint32_t i = 0; i < p; ++i) {
      StageCoreConfig core;
      core.stage = i;
      core.num_stages = p;
      core.window = windows[i];
      core.input_window = i == 0 ? 0 : windows[i - 1];
      core.rule = VersionRule(m, {{0, j}});
      core.order = ItemOrder(m, steps[run], 0, 0);
      core.total_steps = core.end_step = steps[run];
      sim.stages.push_back(core);
      sim.forward.push_back(1.0 / 3);
      sim.backward.push_back(2.0 / 3);
      sim.delay.push_back(one_way);
      sim.serialisation.push_back(0.1);
    }
    const SimResult result = RunSim(sim);
    EXPECT_EQ(result.error, "");
    seconds[run] = result.seconds;
  }
  return 20.0 * m / (seconds[1] - seconds[0]);
}

TEST(SimPipeline, FractionalDelayOverLongLinks_KeepsTheComputeLaneBusy) {
  const uint32_t p = 4;
  const double one_way = 2.5;
  std::vector<uint32_t> windows, p_minus_i;
  for (uint32_t i = 0; i < p; ++i) {
    const double loop = (p - i) + (p - 1 - i) * (2 * one_way + 0.2);
    windows.push_back(WindowOf(loop, 1.0, i, p));
    p_minus_i.push_back(p - i);
  }
  const uint32_t n = windows[0];
  EXPECT_GE(Efficiency(p, 2 * n, n, one_way, windows), 0.97);
  EXPECT_GE(Efficiency(p, n, n, one_way, windows), 0.97);
  const double sync = Efficiency(p, 2 * n, 0, one_way, windows);
  EXPECT_NEAR(sync, SynchronousEfficiency(2 * n, 1.0, p + (p - 1) * (2 * one_way + 0.2), 0), 0.08);
  EXPECT_LT(Efficiency(p, 2 * n, 0, one_way, p_minus_i), 0.5) << "classic 1F1B cannot hide the links";
}

// Unequal stages and links, zero-bubble J: filling and draining cancel in the difference of two lengths.
TEST(SimPipeline, UnequalStagesAndLinks_ReachNearlyTheIdeal) {
  Draw draw(Seed(), 1u << 30);
  for (int pipeline = 0; pipeline < 8; ++pipeline) {
    const uint32_t p = draw.Between(2, 8);
    SimCase sim;
    sim.update = 0.2;
    for (uint32_t i = 0; i < p; ++i) {
      const double busy = i == 0 ? 1.0 : 0.7 + 0.3 * draw.Uniform();
      sim.forward.push_back(busy / 3);
      sim.backward.push_back(busy * 2 / 3);
      sim.delay.push_back(0.1 + 2 * draw.Uniform());
      sim.serialisation.push_back(0.3 * draw.Uniform());
    }
    std::vector<uint32_t> windows(p);
    double loop = 0;
    for (uint32_t i = p; i-- > 0;) {
      loop += sim.forward[i] + sim.backward[i] + (i + 1 < p ? 2 * (sim.delay[i] + sim.serialisation[i]) : 0);
      windows[i] = WindowOf(loop, 1.0, i, p);
    }
    const uint32_t m = 2 * windows[0], j = ChooseJ(m, windows[0], 1.0, loop, sim.update);
    SimResult results[2];
    for (int run = 0; run < 2; ++run) {
      sim.stages.clear();
      for (uint32_t i = 0; i < p; ++i) {
        StageCoreConfig& core = sim.stages.emplace_back();
        core.stage = i;
        core.num_stages = p;
        core.window = windows[i];
        core.input_window = i == 0 ? 0 : windows[i - 1];
        core.rule = VersionRule(m, {{0, j}});
        core.total_steps = core.end_step = run == 0 ? 5 : 15;
        core.order = ItemOrder(m, core.total_steps, 0, 0);
      }
      results[run] = RunSim(sim);
      ASSERT_EQ(results[run].error, "");
    }
    // The update runs on the compute lane: the ceiling is 1 / (t* + t_opt / M).
    const double ceiling = 1 / (1 + sim.update / m);
    const double efficiency = (results[1].ideal - results[0].ideal) / (results[1].seconds - results[0].seconds);
    EXPECT_GE(efficiency, 0.97 * ceiling) << "P=" << p << " N=" << windows[0] << " M=" << m << " J=" << j;
    EXPECT_LE(efficiency, 1.001);
  }
}

TEST(SimPipeline, LagHistogram_HasOnlyTheTwoLagsOfTheRule) {
  for (const auto& [m, j] : std::vector<std::pair<uint32_t, uint32_t>>{{4, 0}, {4, 3}, {4, 4}, {4, 7}, {3, 9}}) {
    SimCase sim;
    StageCoreConfig core;
    core.window = 3;
    core.rule = VersionRule(m, {{0, j}});
    core.order = ItemOrder(m, 20, 0, 0);
    core.total_steps = core.end_step = 20;
    sim.stages = {core};
    sim.forward = {1};
    sim.backward = {1};
    sim.delay = sim.serialisation = {0};
    const SimResult result = RunSim(sim);
    ASSERT_EQ(result.error, "");
    const uint32_t tau = (j + m - 1) / m;
    ASSERT_EQ(result.lags.size(), 20u);
    // The first tau steps are clamped at W^(0); from then on every step has the same two lags.
    for (uint32_t step = tau; step < 20; ++step) {
      std::map<uint64_t, uint32_t> expected;
      const uint32_t at_tau = tau == 0 ? m : j - (tau - 1) * m;
      expected[tau] = at_tau;
      if (at_tau < m) expected[tau - 1] = m - at_tau;
      EXPECT_EQ(result.lags[step], expected) << "M=" << m << " J=" << j << " step " << step;
    }
  }
}

}  // namespace
}  // namespace stagecoach
