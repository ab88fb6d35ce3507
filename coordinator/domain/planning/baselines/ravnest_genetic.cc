#include "coordinator/domain/planning/baselines/ravnest_genetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "common/rng_draws.h"
#include "coordinator/domain/planning/baselines/share_cuts.h"

namespace stagecoach {
namespace {

// Of the public code.
constexpr uint32_t kPopulation = 200, kGenerations = 500, kTournament = 5;
constexpr double kMutationRate = 0.01, kWorstKept = 1'000'000;

using Genes = std::vector<uint8_t>;

const Genes& Winner(const std::vector<Genes>& population, const std::vector<double>& penalties, RngDraws* draws) {
  std::array<uint32_t, kTournament> chosen;
  for (uint32_t k = 0; k < kTournament; ++k) {
    do {
      chosen[k] = draws->Below(kPopulation);
    } while (std::find(chosen.begin(), chosen.begin() + k, chosen[k]) != chosen.begin() + k);
  }
  return population[*std::min_element(chosen.begin(), chosen.end(),
                                      [&](uint32_t a, uint32_t b) { return penalties[a] < penalties[b]; })];
}

void Mutate(uint32_t clusters, RngDraws* draws, Genes* genes) {
  for (uint8_t& gene : *genes) {
    if (draws->Unit() < kMutationRate) gene = static_cast<uint8_t>(draws->Below(clusters));
  }
}

}  // namespace

double RavnestPenalty(const std::vector<RavnestNode>& nodes, double model_mb, const std::vector<uint8_t>& genes) {
  struct Sum {
    bool used = false;
    double ram = 0, speed = 0;
  };
  std::array<Sum, 256> sums;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Sum& sum = sums[genes[i]];
    sum.used = true;
    sum.ram += nodes[i].ram_mb;
    sum.speed += std::floor(nodes[i].ram_mb / nodes[i].bandwidth_mbit);
  }
  double missing = 0, fastest = std::numeric_limits<double>::infinity(), slowest = 0;
  for (const Sum& sum : sums) {
    if (!sum.used) continue;
    missing += std::max(0.0, model_mb - sum.ram);
    slowest = std::max(slowest, sum.speed);
    fastest = std::min(fastest, sum.speed);
  }
  return nodes.empty() ? 0 : 100 * missing + slowest - fastest;
}

std::optional<std::vector<uint8_t>> EvolveRavnestClusters(const std::vector<RavnestNode>& nodes, double model_mb,
                                                          uint32_t most_clusters, uint64_t seed) {
  const auto num = static_cast<uint32_t>(nodes.size());
  if (num < 2) {
    Genes one(num, 0);
    return RavnestPenalty(nodes, model_mb, one) < kWorstKept ? std::optional(one) : std::nullopt;
  }
  RngDraws draws(seed, RngPurpose::kPlanBaseline);
  std::vector<Genes> population(kPopulation, Genes(num)), next;
  for (Genes& genes : population) {
    for (uint8_t& gene : genes) gene = static_cast<uint8_t>(draws.Below(most_clusters));
  }
  std::optional<Genes> best;
  double least = kWorstKept;
  std::vector<double> penalties(kPopulation);
  for (uint32_t generation = 0; generation < kGenerations; ++generation) {
    for (uint32_t i = 0; i < kPopulation; ++i) {
      penalties[i] = RavnestPenalty(nodes, model_mb, population[i]);
      if (penalties[i] < least) least = penalties[i], best = population[i];
    }
    next.clear();
    while (next.size() < kPopulation) {
      Genes first = Winner(population, penalties, &draws), second = Winner(population, penalties, &draws);
      const uint32_t point = 1 + draws.Below(num - 1);
      std::swap_ranges(first.begin() + point, first.end(), second.begin() + point);
      for (Genes* child : {&first, &second}) {
        Mutate(most_clusters, &draws, child);
        next.push_back(std::move(*child));
      }
    }
    population.swap(next);
  }
  return best;
}

Division RavnestDivision(const CostModel& costs, RavnestCuts cuts, uint32_t most_clusters, uint64_t seed) {
  constexpr double kMegabyte = 1e6, kMbit = 1e6 / 8;
  const double model_mb = static_cast<double>(costs.MemoryBytes(0, costs.last_point())) / kMegabyte;
  const auto rate = [](double bytes) { return bytes > 0 ? bytes / kMbit : std::numeric_limits<double>::infinity(); };
  std::vector<RavnestNode> nodes;
  for (const FleetWorker& worker : costs.fleet().workers) {
    const double ram = worker.memory_bytes > 0 ? static_cast<double>(worker.memory_bytes) / kMegabyte : model_mb;
    nodes.push_back({ram, std::min(rate(worker.up_bytes_per_second), rate(worker.down_bytes_per_second))});
  }
  // Genes are bytes.
  const uint32_t most = std::min(256u, most_clusters > 0 ? most_clusters : kRavnestClusters);
  const std::optional<Genes> genes = EvolveRavnestClusters(nodes, model_mb, most, seed);
  if (!genes) return {};
  WorkerGroups groups(most);
  for (uint32_t i = 0; i < nodes.size(); ++i) groups[(*genes)[i]].push_back(i);
  Division division;
  for (std::vector<uint32_t>& group : groups) {
    if (group.empty()) continue;
    std::vector<double> shares = RoundedEqualShares(static_cast<uint32_t>(group.size()));
    if (cuts == RavnestCuts::kByMemory) {
      double all = 0;
      for (const uint32_t worker : group) all += nodes[worker].ram_mb;
      for (size_t i = 0; i < group.size(); ++i) shares[i] = nodes[group[i]].ram_mb / all;
    }
    std::optional<std::vector<uint32_t>> points = CutsByShares(costs, shares);
    if (points) division.push_back({std::move(group), *std::move(points)});
  }
  return division;
}

}  // namespace stagecoach
