#include "coordinator/domain/replanning.h"

#include <algorithm>
#include <numeric>

namespace stagecoach {
namespace {

constexpr MonoTime kHour = std::chrono::hours(1);

}  // namespace

bool ReplanBudget::Allows(MonoTime now) const {
  const auto recent = std::count_if(spent_.begin(), spent_.end(), [now](MonoTime at) { return now - at < kHour; });
  return recent < static_cast<std::ptrdiff_t>(most_per_hour_);
}

void ReplanBudget::Spend(MonoTime now) {
  spent_.push_back(now);
  while (spent_.size() > most_per_hour_) spent_.pop_front();
}

std::optional<Placement> PlacementWithout(Placement placement, absl::string_view lost,
                                          const std::vector<std::string>& standbys) {
  auto& [members, sizes] = placement;
  const auto gone = std::find(members.begin(), members.end(), std::string(lost));
  if (!standbys.empty()) {
    *gone = standbys.front();
    return placement;
  }
  size_t cluster = 0, first = 0;
  for (const auto index = static_cast<size_t>(gone - members.begin()); index >= first + sizes[cluster]; ++cluster) {
    first += sizes[cluster];
  }
  if (sizes[cluster] > 1) {
    members.erase(gone);
    --sizes[cluster];
    return placement;
  }
  const auto largest = static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
  if (sizes[largest] < 2) return std::nullopt;
  const size_t last =
      std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(largest) + 1, size_t{0});
  *gone = members[last - 1];
  members.erase(members.begin() + static_cast<std::ptrdiff_t>(last) - 1);
  --sizes[largest];
  return placement;
}

}  // namespace stagecoach
