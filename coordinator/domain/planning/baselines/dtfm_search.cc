#include "coordinator/domain/planning/baselines/dtfm_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "common/rng_draws.h"
#include "coordinator/domain/planning/baselines/share_cuts.h"

namespace stagecoach {
namespace {

// Of the public code.
constexpr uint32_t kPopulation = 100, kOffspring = 4900, kCrossed = 5;
constexpr double kNoPath = 1e6;  // seconds between workers that do not reach each other

using Genes = std::vector<uint32_t>;  // group of each device

struct Candidate {
  Genes genes;
  double seconds = 0;
};

DtfmGroups GroupsOf(const Genes& genes, uint32_t num_groups) {
  DtfmGroups groups(num_groups);
  for (uint32_t d = 0; d < genes.size(); ++d) groups[genes[d]].push_back(d);
  return groups;
}

// One offspring under Kernighan-Lin moves: keeps what each device's move would gain up to date.
class CircularMoves {
 public:
  CircularMoves(const DtfmNetwork& network, uint32_t num_groups, Genes genes)
      : network_(network), num_groups_(num_groups), genes_(std::move(genes)), locked_(genes_.size(), false) {
    sums_.assign(genes_.size() * num_groups_, 0);
    sizes_.assign(num_groups_, 0);
    for (uint32_t d = 0; d < genes_.size(); ++d) Count(d, genes_[d], 1);
  }

  // Cycles for as long as one gains, at most one for each group: every cycle locks what it moves.
  Genes Improve() {
    for (uint32_t cycle = 0; cycle < num_groups_ && MoveOneCycle(); ++cycle) {
    }
    return std::move(genes_);
  }

 private:
  struct Move {
    uint32_t device = 0, from = 0, to = 0;
    double gain = -std::numeric_limits<double>::infinity();
  };

  double Seconds(uint32_t d, uint32_t e) const { return network_.pipeline_seconds[size_t{d} * network_.devices + e]; }

  // Counts d in or out of a group in the sums of everybody.
  void Count(uint32_t d, uint32_t group, int sign) {
    sizes_[group] += sign;
    for (uint32_t e = 0; e < genes_.size(); ++e) {
      if (e != d) sums_[size_t{e} * num_groups_ + group] += sign * Seconds(e, d);
    }
  }
  void Put(uint32_t d, uint32_t group) {
    Count(d, genes_[d], -1);
    genes_[d] = group;
    Count(d, group, 1);
  }
  double FastestPartner(uint32_t d) const {
    double fastest = std::numeric_limits<double>::infinity();
    for (uint32_t e = 0; e < genes_.size(); ++e) {
      if (e != d && genes_[e] == genes_[d]) fastest = std::min(fastest, Seconds(d, e));
    }
    return std::isinf(fastest) ? 0 : fastest;  // alone
  }
  double Mean(uint32_t d, uint32_t group) const {
    return sizes_[group] > 0 ? sums_[size_t{d} * num_groups_ + group] / sizes_[group] : 0;
  }
  // The best move out of a group, or of any group, of devices that have not moved yet.
  Move BestMove(bool any_group, uint32_t from) const {
    Move best;
    for (uint32_t d = 0; d < genes_.size(); ++d) {
      if (locked_[d] || (!any_group && genes_[d] != from)) continue;
      const double fastest = FastestPartner(d);
      for (uint32_t to = 0; to < num_groups_; ++to) {
        const double gain = Mean(d, to) - fastest;
        if (to != genes_[d] && gain > best.gain) best = {d, genes_[d], to, gain};
      }
    }
    return best;
  }

  // A chain of moves, closed where the sum of gains is largest; false: nothing gains, and nothing is changed.
  bool MoveOneCycle() {
    std::vector<Move> moves;
    double sum = 0, best_sum = 0;
    size_t best_length = 0;
    uint32_t start = 0;
    for (Move move = BestMove(true, 0); std::isfinite(move.gain); move = BestMove(false, moves.back().to)) {
      if (moves.empty()) start = move.from;
      if (!moves.empty()) {
        // Closed here: this device goes to where the chain began.
        const double closed = sum + Mean(move.device, start) - FastestPartner(move.device);
        if (closed > best_sum) best_sum = closed, best_length = moves.size() + 1;
      }
      sum += move.gain;
      locked_[move.device] = true;
      moves.push_back(move);
      Put(move.device, move.to);
      if (move.to == start) break;
    }
    for (size_t i = moves.size(); i > best_length; --i) Put(moves[i - 1].device, moves[i - 1].from);
    if (best_length > 0) Put(moves[best_length - 1].device, start);
    return best_length > 0;
  }

  const DtfmNetwork& network_;
  uint32_t num_groups_;
  Genes genes_;
  std::vector<bool> locked_;
  std::vector<double> sums_;  // (device, group): seconds to its members
  std::vector<int> sizes_;
};

Genes Cross(const Genes& from, Genes child, uint32_t num_groups, RngDraws* draws) {
  std::vector<uint32_t> places(child.size());
  std::iota(places.begin(), places.end(), 0);
  draws->Shuffle(&places);
  for (size_t i = 0; i < std::min<size_t>(kCrossed, places.size()); ++i) child[places[i]] = from[places[i]];
  const auto size = static_cast<uint32_t>(child.size()) / num_groups;
  std::vector<uint32_t> sizes(num_groups);
  for (const uint32_t group : child) ++sizes[group];
  for (uint32_t& group : child) {
    if (sizes[group] <= size) continue;
    --sizes[group];
    group = static_cast<uint32_t>(std::find_if(sizes.begin(), sizes.end(), [&](uint32_t s) { return s < size; }) -
                                  sizes.begin());
    ++sizes[group];
  }
  return child;
}

}  // namespace

DtfmGroups SearchDtfmGroups(const DtfmNetwork& network, uint32_t num_groups, uint64_t seed) {
  RngDraws draws(seed, RngPurpose::kPlanBaseline, num_groups);
  Genes genes(network.devices);
  for (uint32_t d = 0; d < network.devices; ++d) genes[d] = d * num_groups / network.devices;
  if (num_groups == 1) return GroupsOf(genes, 1);
  const auto judged = [&](Genes of) {
    const double seconds = CommunicationSeconds(network, GroupsOf(of, num_groups));
    return Candidate{std::move(of), seconds};
  };
  std::vector<Candidate> population;
  for (uint32_t i = 0; i < kPopulation; ++i) {
    draws.Shuffle(&genes);
    population.push_back(judged(genes));
  }
  for (uint32_t i = 0; i < kOffspring; ++i) {
    Candidate& first = population[draws.Below(kPopulation)];
    Candidate& second = population[draws.Below(kPopulation)];
    Genes child = Cross(first.genes, second.genes, num_groups, &draws);
    Candidate offspring = judged(CircularMoves(network, num_groups, std::move(child)).Improve());
    if (offspring.seconds > std::max(first.seconds, second.seconds)) continue;
    (first.seconds > second.seconds ? first : second) = std::move(offspring);
  }
  const auto best = std::min_element(population.begin(), population.end(),
                                     [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  return GroupsOf(best->genes, num_groups);
}

DtfmNetwork DtfmNetworkOf(const CostModel& costs, uint32_t num_groups, uint32_t devices) {
  const PlanModel& model = costs.model();
  uint64_t parameters = 0;
  for (const PlanUnit& unit : model.units) parameters += unit.parameters;
  const double pipeline_bytes = model.frame_bytes * model.microbatches;
  const double data_bytes =
      static_cast<double>(parameters) / num_groups * model.averaging_bytes / model.steps_per_round;
  const double data_parallel = static_cast<double>(devices) / num_groups;
  // Edges of two sizes of frame: delay, and both directions' time of a byte.
  constexpr double kProbe = 1e9;
  const LinkCosts empty(costs.fleet(), 0), probe(costs.fleet(), kProbe);
  DtfmNetwork network;
  network.devices = devices;
  for (uint32_t d = 0; d < devices; ++d) {
    for (uint32_t e = 0; e < devices; ++e) {
      const double alpha = empty.Between(d, e).hop_seconds;
      const bool reachable = std::isfinite(alpha);
      const double byte = reachable ? (probe.Between(d, e).hop_seconds - alpha) / (2 * kProbe) : 0;
      network.data_seconds.push_back(reachable ? alpha + data_bytes / data_parallel * byte : kNoPath);
      network.pipeline_seconds.push_back(reachable ? alpha + pipeline_bytes * byte : kNoPath);
    }
  }
  return network;
}

Division DtfmDivision(const CostModel& costs, uint32_t stages, uint64_t seed) {
  const uint32_t devices = costs.num_workers() / stages * stages;
  const DtfmNetwork network = DtfmNetworkOf(costs, stages, devices);
  Division division;
  for (std::vector<uint32_t>& pipeline : PipelinesOf(network, SearchDtfmGroups(network, stages, seed))) {
    division.push_back({std::move(pipeline), EqualCuts(costs, stages)});
  }
  return division;
}

}  // namespace stagecoach
