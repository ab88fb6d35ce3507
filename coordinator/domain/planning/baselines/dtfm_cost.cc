#include "coordinator/domain/planning/baselines/dtfm_cost.h"

#include <algorithm>
#include <limits>

namespace stagecoach {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

// Perfect matchings that use no weight above a limit, by augmenting paths.
class LimitedMatching {
 public:
  LimitedMatching(const std::vector<double>& weights, uint32_t size) : weights_(weights), size_(size) {}

  bool Exists(double limit) {
    row_of_.assign(size_, kNobody);
    for (uint32_t row = 0; row < size_; ++row) {
      visited_.assign(size_, false);
      if (!Augment(row, limit)) return false;
    }
    return true;
  }
  const std::vector<uint32_t>& row_of() const { return row_of_; }

 private:
  bool Augment(uint32_t row, double limit) {
    for (uint32_t column = 0; column < size_; ++column) {
      if (visited_[column] || weights_[size_t{row} * size_ + column] > limit) continue;
      visited_[column] = true;
      if (row_of_[column] == kNobody || Augment(row_of_[column], limit)) {
        row_of_[column] = row;
        return true;
      }
    }
    return false;
  }

  const std::vector<double>& weights_;
  uint32_t size_;
  std::vector<uint32_t> row_of_;  // of a column
  std::vector<bool> visited_;
};

HeaviestMatching MatchGroups(const DtfmNetwork& network, const std::vector<uint32_t>& a,
                             const std::vector<uint32_t>& b) {
  std::vector<double> weights;
  weights.reserve(a.size() * b.size());
  for (const uint32_t d : a) {
    for (const uint32_t e : b) weights.push_back(network.pipeline_seconds[size_t{d} * network.devices + e]);
  }
  return MatchLightest(weights, static_cast<uint32_t>(a.size()));
}

OpenPath PathOverGroups(const DtfmNetwork& network, const DtfmGroups& groups) {
  const auto num = static_cast<uint32_t>(groups.size());
  std::vector<double> distances(size_t{num} * num);
  for (uint32_t i = 0; i < num; ++i) {
    for (uint32_t j = 0; j < i; ++j) {
      distances[size_t{i} * num + j] = distances[size_t{j} * num + i] =
          MatchGroups(network, groups[i], groups[j]).heaviest;
    }
  }
  return ShortestOpenPath(distances, num);
}

}  // namespace

HeaviestMatching MatchLightest(const std::vector<double>& weights, uint32_t size) {
  // No matching is lighter than the lightest way to serve some row or column.
  double least = 0;
  for (uint32_t i = 0; i < size; ++i) {
    double row = kInfinity, column = kInfinity;
    for (uint32_t j = 0; j < size; ++j) {
      row = std::min(row, weights[size_t{i} * size + j]);
      column = std::min(column, weights[size_t{j} * size + i]);
    }
    least = std::max({least, row, column});
  }
  std::vector<double> candidates;
  for (const double weight : weights) {
    if (weight >= least) candidates.push_back(weight);
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  LimitedMatching matching(weights, size);
  size_t low = 0, high = candidates.size() - 1;
  if (matching.Exists(candidates[0])) high = 0;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (matching.Exists(candidates[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  matching.Exists(candidates[high]);
  HeaviestMatching result{candidates[high], std::vector<uint32_t>(size)};
  for (uint32_t column = 0; column < size; ++column) result.partner[matching.row_of()[column]] = column;
  return result;
}

OpenPath ShortestOpenPath(const std::vector<double>& distances, uint32_t size) {
  // shortest[S][last]: over exactly the places S, ending in `last`.
  const uint32_t sets = 1u << size;
  std::vector<double> shortest(size_t{sets} * size, kInfinity);
  std::vector<uint32_t> before(size_t{sets} * size, kNobody);
  for (uint32_t i = 0; i < size; ++i) shortest[(size_t{1} << i) * size + i] = 0;
  for (uint32_t set = 1; set < sets; ++set) {
    for (uint32_t last = 0; last < size; ++last) {
      const double length = shortest[size_t{set} * size + last];
      if (length == kInfinity) continue;
      for (uint32_t next = 0; next < size; ++next) {
        if (set >> next & 1) continue;
        const size_t to = size_t{set | 1u << next} * size + next;
        const double longer = length + distances[size_t{last} * size + next];
        if (longer < shortest[to]) shortest[to] = longer, before[to] = last;
      }
    }
  }
  uint32_t set = sets - 1;
  const auto all = shortest.begin() + static_cast<int64_t>(size_t{set} * size);
  auto last = static_cast<uint32_t>(std::min_element(all, all + size) - all);
  OpenPath path{all[last], {}};
  while (last != kNobody) {
    path.order.push_back(last);
    const uint32_t previous = before[size_t{set} * size + last];
    set &= ~(1u << last);
    last = previous;
  }
  std::reverse(path.order.begin(), path.order.end());
  return path;
}

double DataParallelSeconds(const DtfmNetwork& network, const DtfmGroups& groups) {
  double slowest = 0;
  for (const std::vector<uint32_t>& group : groups) {
    for (const uint32_t d : group) {
      double sum = 0;
      for (const uint32_t e : group) {
        if (d != e) sum += 2 * network.data_seconds[size_t{d} * network.devices + e];
      }
      slowest = std::max(slowest, sum);
    }
  }
  return slowest;
}

double CommunicationSeconds(const DtfmNetwork& network, const DtfmGroups& groups) {
  return DataParallelSeconds(network, groups) + 2 * PathOverGroups(network, groups).length;
}

std::vector<std::vector<uint32_t>> PipelinesOf(const DtfmNetwork& network, const DtfmGroups& groups) {
  const OpenPath path = PathOverGroups(network, groups);
  std::vector<std::vector<uint32_t>> pipelines;
  std::vector<uint32_t> place;  // of each pipeline's device in the group reached
  for (uint32_t i = 0; i < groups[path.order[0]].size(); ++i) {
    pipelines.push_back({groups[path.order[0]][i]});
    place.push_back(i);
  }
  for (size_t stage = 1; stage < path.order.size(); ++stage) {
    const std::vector<uint32_t>& group = groups[path.order[stage]];
    const HeaviestMatching matching = MatchGroups(network, groups[path.order[stage - 1]], group);
    for (size_t i = 0; i < pipelines.size(); ++i) {
      place[i] = matching.partner[place[i]];
      pipelines[i].push_back(group[place[i]]);
    }
  }
  return pipelines;
}

}  // namespace stagecoach
