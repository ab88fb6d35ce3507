#include "coordinator/domain/planning/link_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace stagecoach {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double RateOf(double bytes_per_second) { return bytes_per_second > 0 ? bytes_per_second : kInfinity; }
uint64_t Key(uint32_t i, uint32_t j) { return uint64_t{i} << 32 | j; }

}  // namespace

LinkCosts::LinkCosts(const Fleet& fleet, double frame_bytes) : frame_bytes_(frame_bytes) {
  std::map<std::string, uint32_t> index;
  for (const FleetWorker& worker : fleet.workers) index[worker.region] = 0;
  for (auto& [name, number] : index) number = num_regions_++;
  for (const FleetWorker& worker : fleet.workers) {
    ends_.push_back({index[worker.region], worker.listens, RateOf(worker.up_bytes_per_second),
                     RateOf(worker.down_bytes_per_second)});
  }
  regions_.resize(size_t{num_regions_} * num_regions_);
  for (const auto& [pair, link] : fleet.regions) {
    const auto from = index.find(pair.first), to = index.find(pair.second);
    if (from == index.end() || to == index.end()) continue;  // a region without workers
    regions_[size_t{from->second} * num_regions_ + to->second] = link;
  }
  for (const auto& [pair, link] : fleet.links) links_[Key(pair.first, pair.second)] = link;
}

const FleetLink& LinkCosts::Directed(uint32_t i, uint32_t j) const {
  if (!links_.empty()) {
    const auto found = links_.find(Key(i, j));
    if (found != links_.end()) return found->second;
  }
  return regions_[size_t{ends_[i].region} * num_regions_ + ends_[j].region];
}

EdgeCost LinkCosts::Between(uint32_t i, uint32_t j) const {
  const FleetLink &there = Directed(i, j), &back = Directed(j, i);
  const bool reachable = there.usable && back.usable && (ends_[i].listens || ends_[j].listens);
  if (!reachable) return {kInfinity, kInfinity};
  const double there_rate = RateOf(there.bytes_per_second), back_rate = RateOf(back.bytes_per_second);
  const double sending = frame_bytes_ / std::min({there_rate, ends_[i].up, ends_[j].down}) +
                         frame_bytes_ / std::min({back_rate, ends_[j].up, ends_[i].down});
  return {frame_bytes_ / std::min(there_rate, back_rate), std::max(there.rtt_seconds, back.rtt_seconds) + sending};
}

}  // namespace stagecoach
