#include "coordinator/domain/planning/large_fleet_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "common/rng_draws.h"
#include "coordinator/domain/planning/chain_cuts.h"
#include "coordinator/domain/planning/partition_search.h"
#include "coordinator/domain/planning/sites.h"

namespace stagecoach {
namespace {

constexpr double kTie = 1 + 1e-9;
constexpr uint32_t kChunk = 10;  // about 0.3 ms; 12 take five times as long for 1 % more
constexpr uint32_t kMostInNeighbourhood = 12;
constexpr uint32_t kManyWorkers = 2000;   // beyond: a larger sample for the window
constexpr uint32_t kMostGroupsTried = 4;  // clusters far deeper than a chunk, of fleets up to kFewWorkers
constexpr uint32_t kFewWorkers = 64;      // beyond: neighbourhoods of kChunk; only one division into sites is improved
constexpr uint32_t kChunksJudged = 8;     // of a site, to choose the order in which it is cut into chunks
constexpr uint32_t kSample = 40;          // workers on which the window is chosen
constexpr uint32_t kSampleOfMany = 240;   // the same of fleets beyond kManyWorkers
// Swaps and relocations; each cuts the chain anew, in time that grows with the square of its length.
constexpr uint32_t kMovesOfLongChain = 120, kMovesTimesSquare = kMovesOfLongChain * 32 * 32;

// What similar workers have in common. Sorting by the resource that is scarce keeps waste small; which one it is shows.
enum class SortKey { kUplink, kSpeed, kMemory };

struct Cluster {
  ClusterDraft draft;
  double goodput = 0;
  uint32_t site = 0;
};

class Search {
 public:
  Search(const CostModel& costs, const PlannerOptions& options)
      : costs_(&costs), options_(options), draws_(options.seed, RngPurpose::kPlanSearch) {}

  void UseCosts(const CostModel& costs) {
    costs_ = &costs;
    for (Cluster& cluster : clusters_) cluster.goodput = costs.GoodputOf(cluster.draft);
  }
  double goodput() const {
    double sum = 0;
    for (const Cluster& cluster : clusters_) sum += cluster.goodput;
    return sum;
  }
  size_t num_clusters() const { return clusters_.size(); }
  std::vector<ClusterDraft> Drafts() const {
    std::vector<ClusterDraft> drafts;
    for (const Cluster& cluster : clusters_) drafts.push_back(cluster.draft);
    return drafts;
  }

  // quickly: one order of the workers, for comparisons.
  void SolveChunks(const Sites& sites, bool quickly);
  // Exactly so many clusters of about equal size; false: one of them does not hold the model.
  bool SolveGroups(const Sites& sites, uint32_t clusters);
  // More clusters, of workers that have none.
  void UseIdle();
  void Improve(uint32_t searches);

 private:
  std::vector<uint32_t> Sorted(std::vector<uint32_t> workers, SortKey key) const;
  // Every `stride`th chunk.
  void SolveChunksOf(const std::vector<uint32_t>& workers, uint32_t site, size_t stride,
                     std::vector<Cluster>* clusters) const;
  // The order of the workers whose chunks do most, judged by some of the chunks; *clusters: what was found if all were.
  SortKey BestKey(const std::vector<uint32_t>& workers, uint32_t site, std::vector<Cluster>* clusters) const;
  void SolveLongChains(const std::vector<uint32_t>& workers, uint32_t site, std::vector<Cluster>* clusters);
  std::optional<ClusterDraft> LongChain(std::vector<uint32_t> order);
  void Replace(const std::vector<uint32_t>& taken, std::vector<Cluster> now);
  void Append(const Division& division, uint32_t site, std::vector<Cluster>* clusters) const {
    for (const ClusterDraft& draft : division.clusters) clusters->push_back({draft, costs_->GoodputOf(draft), site});
  }

  const CostModel* costs_;
  PlannerOptions options_;
  RngDraws draws_;
  std::vector<Cluster> clusters_;
  std::vector<std::vector<uint32_t>> idle_;  // by site
};

double Sum(const std::vector<Cluster>& clusters) {
  double sum = 0;
  for (const Cluster& cluster : clusters) sum += cluster.goodput;
  return sum;
}

std::vector<uint32_t> Search::Sorted(std::vector<uint32_t> workers, SortKey key) const {
  const auto value = [&](uint32_t index) {
    const FleetWorker& worker = costs_->fleet().workers[index];
    switch (key) {
      case SortKey::kUplink:
        return worker.up_bytes_per_second > 0 ? -worker.up_bytes_per_second : -std::numeric_limits<double>::infinity();
      case SortKey::kSpeed:
        return costs_->LoopSeconds(index, 0, costs_->last_point());
      case SortKey::kMemory:
        break;
    }
    return worker.memory_bytes > 0 ? -static_cast<double>(worker.memory_bytes)
                                   : -std::numeric_limits<double>::infinity();
  };
  std::vector<std::pair<double, uint32_t>> keyed;
  keyed.reserve(workers.size());
  for (const uint32_t worker : workers) keyed.emplace_back(value(worker), worker);
  std::sort(keyed.begin(), keyed.end());
  for (size_t i = 0; i < workers.size(); ++i) workers[i] = keyed[i].second;
  return workers;
}

void Search::SolveChunksOf(const std::vector<uint32_t>& workers, uint32_t site, size_t stride,
                           std::vector<Cluster>* clusters) const {
  const size_t num_chunks = (workers.size() + kChunk - 1) / kChunk;
  for (size_t i = 0; i < num_chunks; i += stride) {
    const auto begin = workers.begin() + static_cast<ptrdiff_t>(i * workers.size() / num_chunks);
    const auto end = workers.begin() + static_cast<ptrdiff_t>((i + 1) * workers.size() / num_chunks);
    Append(PartitionSearch(*costs_, {begin, end}).Best(0), site, clusters);
  }
}

SortKey Search::BestKey(const std::vector<uint32_t>& workers, uint32_t site, std::vector<Cluster>* clusters) const {
  SortKey best = SortKey::kUplink;
  double most = 0;
  const size_t stride = 1 + workers.size() / kChunk / kChunksJudged;
  for (const SortKey key : {SortKey::kUplink, SortKey::kSpeed, SortKey::kMemory}) {
    std::vector<Cluster> found;
    SolveChunksOf(Sorted(workers, key), site, stride, &found);
    if (Sum(found) <= most * kTie) continue;
    most = Sum(found);
    best = key;
    if (stride == 1) *clusters = std::move(found);
  }
  return best;
}

void Search::SolveChunks(const Sites& sites, bool quickly) {
  clusters_.clear();
  idle_.assign(sites.size(), {});
  for (uint32_t site = 0; site < sites.size(); ++site) {
    std::vector<Cluster> best;
    const SortKey key = quickly ? SortKey::kUplink : BestKey(sites[site], site, &best);
    if (best.empty()) SolveChunksOf(Sorted(sites[site], key), site, 1, &best);
    const auto idle_of = [&](const std::vector<Cluster>& clusters) {
      std::vector<uint32_t> used;
      for (const Cluster& cluster : clusters) {
        used.insert(used.end(), cluster.draft.workers.begin(), cluster.draft.workers.end());
      }
      std::sort(used.begin(), used.end());
      std::vector<uint32_t> idle;
      std::set_difference(sites[site].begin(), sites[site].end(), used.begin(), used.end(), std::back_inserter(idle));
      return idle;
    };
    if (best.empty()) {
      for (const SortKey order : {SortKey::kMemory, SortKey::kSpeed}) {
        std::vector<Cluster> found;
        SolveLongChains(Sorted(sites[site], order), site, &found);
        if (Sum(found) > Sum(best) * kTie) best = std::move(found);
      }
    } else {
      // Those whom their chunks had no use for, together.
      SolveChunksOf(Sorted(idle_of(best), key), site, 1, &best);
    }
    idle_[site] = idle_of(best);
    clusters_.insert(clusters_.end(), best.begin(), best.end());
  }
}

// Clusters deeper than a chunk: each takes the next workers until the model fits.
void Search::SolveLongChains(const std::vector<uint32_t>& workers, uint32_t site, std::vector<Cluster>* clusters) {
  std::vector<uint32_t> group;
  for (const uint32_t worker : workers) {
    group.push_back(worker);
    if (group.size() <= kChunk) continue;
    if (!CutChain(*costs_, group, /*may_skip=*/true)) continue;
    const std::optional<ClusterDraft> draft = LongChain(group);
    clusters->push_back({*draft, costs_->GoodputOf(*draft), site});
    group.clear();
  }
}

// An order of any length: nearest neighbours first, then swaps and relocations. Workers may be left out.
std::optional<ClusterDraft> Search::LongChain(std::vector<uint32_t> order) {
  for (size_t i = 1; i + 1 < order.size(); ++i) {
    size_t nearest = i;
    for (size_t j = i; j < order.size(); ++j) {
      if (costs_->Edge(order[i - 1], order[j]).hop_seconds < costs_->Edge(order[i - 1], order[nearest]).hop_seconds) {
        nearest = j;
      }
    }
    std::swap(order[i], order[nearest]);
  }
  std::optional<ClusterDraft> best = CutChain(*costs_, order, /*may_skip=*/true);
  if (!best && order.size() > kFewWorkers) return best;  // to find any cut would take long
  double best_goodput = best ? costs_->GoodputOf(*best) : -1;
  const auto size = static_cast<uint32_t>(order.size());
  const uint32_t moves = size < 2 ? 0 : std::min(kMovesOfLongChain, kMovesTimesSquare / (size * size));
  for (uint32_t move = 0; move < moves; ++move) {
    std::vector<uint32_t> next = order;
    const uint32_t i = draws_.Below(size), j = draws_.Below(size);
    if (draws_.Below(2) == 0) {
      std::swap(next[i], next[j]);
    } else {
      const uint32_t worker = next[i];
      next.erase(next.begin() + i);
      next.insert(next.begin() + j, worker);
    }
    std::optional<ClusterDraft> draft = CutChain(*costs_, next, /*may_skip=*/true, best_goodput);
    const double goodput = draft ? costs_->GoodputOf(*draft) : -1;
    if (goodput < best_goodput) continue;
    order = std::move(next);
    best = std::move(draft);
    best_goodput = goodput;
  }
  return best;
}

bool Search::SolveGroups(const Sites& sites, uint32_t clusters) {
  clusters_.clear();
  std::vector<uint32_t> workers;
  for (const auto& site : sites) {
    const std::vector<uint32_t> sorted = Sorted(site, SortKey::kUplink);
    workers.insert(workers.end(), sorted.begin(), sorted.end());
  }
  idle_.assign(1, {});  // neighbourhoods are free to cross sites
  for (uint32_t c = 0; c < clusters; ++c) {
    const auto begin = workers.begin() + static_cast<ptrdiff_t>(uint64_t{c} * workers.size() / clusters);
    const auto end = workers.begin() + static_cast<ptrdiff_t>((uint64_t{c} + 1) * workers.size() / clusters);
    std::vector<uint32_t> group(begin, end);
    std::optional<ClusterDraft> draft;
    if (group.size() <= kMostInNeighbourhood) {
      const Division division = PartitionSearch(*costs_, group).Best(1);
      if (!division.clusters.empty()) draft = division.clusters[0];
    } else {
      draft = LongChain(group);
    }
    if (!draft) return false;
    for (const uint32_t worker : group) {
      if (std::find(draft->workers.begin(), draft->workers.end(), worker) == draft->workers.end()) {
        idle_[0].push_back(worker);
      }
    }
    clusters_.push_back({*draft, costs_->GoodputOf(*draft), 0});
  }
  return true;
}

void Search::UseIdle() {
  for (uint32_t site = 0; site < idle_.size(); ++site) {
    while (MayHoldModel(*costs_, idle_[site])) {
      std::vector<uint32_t> workers = Sorted(idle_[site], SortKey::kUplink);
      workers.resize(std::min<size_t>(workers.size(), kFewWorkers));
      std::vector<Cluster> found;
      SolveChunksOf(workers, site, 1, &found);
      if (found.empty() && workers.size() > kChunk) {
        const std::optional<ClusterDraft> draft = LongChain(workers);
        if (draft) found.push_back({*draft, costs_->GoodputOf(*draft), site});
      }
      if (found.empty()) break;
      for (Cluster& cluster : found) {
        std::erase_if(idle_[site], [&](uint32_t worker) {
          return std::find(cluster.draft.workers.begin(), cluster.draft.workers.end(), worker) !=
                 cluster.draft.workers.end();
        });
        clusters_.push_back(std::move(cluster));
      }
    }
  }
}

// Takes one or two clusters that lie close to another of their site, and idle workers, and solves them anew.
void Search::Improve(uint32_t searches) {
  constexpr uint32_t kNear = 8;  // clusters apart in the order of chunks: similar workers
  constexpr uint32_t kMostIdleTaken = 2;
  const uint32_t most = costs_->num_workers() > kFewWorkers ? kChunk : kMostInNeighbourhood;
  for (uint32_t search = 0; search < searches && !clusters_.empty(); ++search) {
    const auto num = static_cast<uint32_t>(clusters_.size());
    std::vector<uint32_t> taken = {draws_.Below(num)}, workers = clusters_[taken[0]].draft.workers;
    const uint32_t site = clusters_[taken[0]].site;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const uint32_t other = (taken[0] + num + draws_.Below(2 * kNear + 1) - std::min(kNear, num)) % num;
      const std::vector<uint32_t>& more = clusters_[other].draft.workers;
      if (clusters_[other].site != site || std::find(taken.begin(), taken.end(), other) != taken.end()) continue;
      if (workers.size() + more.size() > most) continue;
      taken.push_back(other);
      workers.insert(workers.end(), more.begin(), more.end());
    }
    std::vector<uint32_t>& idle = idle_[site];
    for (uint32_t i = 0; i < kMostIdleTaken && !idle.empty() && workers.size() < most; ++i) {
      const uint32_t at = draws_.Below(static_cast<uint32_t>(idle.size()));
      workers.push_back(idle[at]);
      idle.erase(idle.begin() + at);
    }
    if (workers.size() > most) continue;  // a long chain; nothing was taken from the idle
    std::sort(workers.begin(), workers.end());
    double before = 0;
    for (const uint32_t c : taken) before += clusters_[c].goodput;
    const auto exactly = options_.clusters > 0 ? static_cast<uint32_t>(taken.size()) : 0;
    const Division division = PartitionSearch(*costs_, workers).Best(exactly);
    std::vector<Cluster> now;
    if (division.goodput > before * kTie) {
      Append(division, site, &now);
    } else {
      for (const uint32_t c : taken) now.push_back(clusters_[c]);
    }
    for (const Cluster& cluster : now) {
      for (const uint32_t worker : cluster.draft.workers) {
        workers.erase(std::find(workers.begin(), workers.end(), worker));
      }
    }
    idle.insert(idle.end(), workers.begin(), workers.end());
    std::sort(taken.begin(), taken.end());
    Replace(taken, std::move(now));
  }
}

// The new clusters take the places of the old ones (ascending), further ones follow the first.
void Search::Replace(const std::vector<uint32_t>& taken, std::vector<Cluster> now) {
  const size_t same = std::min(taken.size(), now.size());
  for (size_t i = 0; i < same; ++i) clusters_[taken[i]] = std::move(now[i]);
  for (size_t i = taken.size(); i > same; --i) clusters_.erase(clusters_.begin() + taken[i - 1]);
  clusters_.insert(clusters_.begin() + taken[0] + 1,
                   std::make_move_iterator(now.begin() + static_cast<ptrdiff_t>(same)),
                   std::make_move_iterator(now.end()));
}

// 10,000 take about two seconds.
uint32_t DefaultSearches(uint32_t workers) { return workers <= kFewWorkers ? 32 : std::min(10000u, workers); }

CostModel CostsOf(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                  const PlannerOptions& options, uint32_t window, size_t clusters) {
  return CostModel(model, fleet, links,
                   {window, static_cast<double>(std::max<size_t>(1, clusters)), options.stall_seconds});
}

// C before it is known: (C-1)/C hardly changes above a few.
size_t GuessedClusters(const PlannerOptions& options, const Fleet& fleet) {
  return options.clusters > 0 ? options.clusters : std::max<size_t>(2, fleet.workers.size() / 4);
}

// Goodput without search, to compare windows.
double QuickGoodput(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                    const PlannerOptions& options, uint32_t window) {
  const CostModel costs = CostsOf(model, fleet, links, options, window, GuessedClusters(options, fleet));
  Search search(costs, options);
  search.SolveChunks(SitesTried(costs).back(), /*quickly=*/true);
  return search.goodput();
}

FoundPlan SearchWindow(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                       const PlannerOptions& options, uint32_t window) {
  const auto num_workers = static_cast<uint32_t>(fleet.workers.size());
  const uint32_t searches = options.searches > 0 ? options.searches : DefaultSearches(num_workers);
  FoundPlan best;
  const auto keep = [&](const Search& search) {
    PlanAssumptions assumptions{window, static_cast<double>(search.num_clusters()), options.stall_seconds};
    if (search.num_clusters() == 0 || search.goodput() <= best.goodput * kTie) return;
    best = {search.Drafts(), assumptions, search.goodput(), 0};
  };
  const auto improve_and_keep = [&](Search* search) {
    const CostModel costs = CostsOf(model, fleet, links, options, window, search->num_clusters());
    search->UseCosts(costs);
    if (options.clusters == 0) search->UseIdle();
    search->Improve(searches);
    const CostModel after = CostsOf(model, fleet, links, options, window, search->num_clusters());
    search->UseCosts(after);
    keep(*search);
  };
  const CostModel guess = CostsOf(model, fleet, links, options, window, GuessedClusters(options, fleet));
  const std::vector<Sites> divisions = SitesTried(guess);
  if (options.clusters == 0) {
    std::vector<Search> solved;
    for (const Sites& sites : divisions) {
      solved.emplace_back(guess, options).SolveChunks(sites, /*quickly=*/false);
    }
    if (num_workers > kFewWorkers) {
      const auto most = [](const Search& a, const Search& b) { return a.goodput() < b.goodput(); };
      std::swap(solved.front(), *std::max_element(solved.begin(), solved.end(), most));
      solved.erase(solved.begin() + 1, solved.end());
    }
    for (Search& search : solved) improve_and_keep(&search);
  }
  // Clusters deeper than a chunk.
  const uint32_t first = options.clusters > 0 ? options.clusters : 1;
  const uint32_t most = options.clusters > 0        ? options.clusters
                        : num_workers > kFewWorkers ? 0
                                                    : std::min(kMostGroupsTried, num_workers / kMostInNeighbourhood);
  for (const Sites& sites : divisions) {
    for (uint32_t clusters = first; clusters <= most; ++clusters) {
      const CostModel costs = CostsOf(model, fleet, links, options, window, clusters);
      Search search(costs, options);
      if (!search.SolveGroups(sites, clusters)) continue;
      improve_and_keep(&search);
    }
  }
  return best;
}

// Workers at even distances of the fleet's order.
Fleet SampleOf(const Fleet& fleet, uint32_t size) {
  Fleet sample;
  sample.regions = fleet.regions;
  for (uint32_t i = 0; i < size; ++i) sample.workers.push_back(fleet.workers[i * fleet.workers.size() / size]);
  return sample;
}

}  // namespace

FoundPlan LargeFleetSearch(const PlanModel& model, const Fleet& fleet, const std::shared_ptr<const LinkCosts>& links,
                           const PlannerOptions& options) {
  const std::vector<uint32_t> windows = WindowsTried(model, fleet, links);
  if (windows.size() == 1) return SearchWindow(model, fleet, links, options, windows[0]);
  const bool all = fleet.workers.size() <= kSample;
  const Fleet sample = all ? fleet : SampleOf(fleet, fleet.workers.size() > kManyWorkers ? kSampleOfMany : kSample);
  const auto sample_links = std::make_shared<const LinkCosts>(sample, model.frame_bytes);
  std::vector<std::pair<double, uint32_t>> judged;  // best first; equal ones: the larger window
  judged.reserve(windows.size());
  for (const uint32_t window : windows) {
    judged.emplace_back(QuickGoodput(model, sample, sample_links, options, window), window);
  }
  std::stable_sort(judged.begin(), judged.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [goodput, window] : judged) {
    FoundPlan found = SearchWindow(model, fleet, links, options, window);
    if (!found.clusters.empty()) return found;
  }
  return {};
}

}  // namespace stagecoach
