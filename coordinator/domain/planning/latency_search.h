// Trades the bottleneck of a cluster against its loop latency where latency counts: when N_max caps the rate, or J = 0.
//
// Threading: pure function.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/domain/planning/cost_model.h"

namespace stagecoach {

// bottleneck: the least that is possible. least_loop(cap): the draft with the least loop latency whose stages and links
// take at most `cap`, nullopt if there is none. Returns the draft with most goodput.
//
// J > 0: bisection for the smallest T with L(T) <= N_max T (L falls as T rises). J = 0: bottlenecks in steps of 8 % for
// as long as a larger one can still win.
template <typename LeastLoop>
std::optional<ClusterDraft> TradeLatency(const CostModel& costs, double bottleneck, const LeastLoop& least_loop) {
  constexpr double kTie = 1 + 1e-9;  // sums in another order differ in the last bits
  constexpr double kCloseEnough = 1 + 1e-7;
  constexpr int kBisections = 30, kSteps = 24;
  std::optional<ClusterDraft> best;
  double best_goodput = -1;
  const auto attempt = [&](double cap) {
    std::optional<ClusterDraft> draft = least_loop(cap * kTie);
    const double goodput = draft ? costs.GoodputOf(*draft) : -1;
    const double loop = draft ? costs.LoopOf(*draft) : std::numeric_limits<double>::infinity();
    if (goodput > best_goodput * kTie) best_goodput = goodput, best = std::move(draft);
    return loop;
  };
  const double loop = attempt(bottleneck);
  if (!best) return best;
  if (costs.model().synchronous) {
    double cap = bottleneck;
    for (int step = 0; step < kSteps && 1 / cap > best_goodput; ++step) attempt(cap *= 1.08);
    return best;
  }
  // The best T is in [low, high]: a chain whose loop takes L does L / N_max; any chain with a lower cap takes L or
  // more.
  const double window = costs.assumptions().window;
  double low = bottleneck, high = loop / window;
  for (int i = 0; i < kBisections && high > low * kCloseEnough; ++i) {
    const double cap = i == 0 ? high : (low + high) / 2;
    const double least = attempt(cap) / window;
    if (least <= cap) {
      low = std::max(low, least);
      high = cap;
    } else {
      low = cap;
      high = std::min(high, least);
    }
  }
  return best;
}

}  // namespace stagecoach
