#include "cli/train/local_network.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/link_profile.h"
#include "common/status_macros.h"
#include "coordinator/domain/planning/link_costs.h"
#include "coordinator/planning_files/fleet_file.h"

namespace stagecoach {
namespace {

constexpr uint32_t kDefaultWorkers = 4;
constexpr uint32_t kMostWorkers = 256;  // processes of one machine

double Mbit(double bytes_per_second) { return bytes_per_second * 8 / 1e6; }

// Digits that lose nothing; 100 Gbit/s is the fastest that can be written.
std::string ProfileOf(const FleetLink& link) {
  if (link.bytes_per_second == 0 && link.rtt_seconds == 0) return "none";
  const double mbit = link.bytes_per_second > 0 ? Mbit(link.bytes_per_second) : 1e5;
  return absl::StrFormat("%.17gmbit/%.17gms", std::min(mbit, 1e5), link.rtt_seconds * 1e3);
}

LocalNetwork Uniform(const std::string& profile, uint32_t workers) {
  LocalNetwork network;
  network.workers.resize(workers);
  for (uint32_t i = 0; i < workers; ++i) network.workers[i].name = absl::StrCat("w", i);
  for (uint32_t from = 0; from < workers && profile != "none"; ++from) {
    for (uint32_t to = 0; to < workers; ++to) {
      if (from != to) network.links.push_back({from, to, profile});
    }
  }
  return network;
}

absl::Status CheckLink(const FleetLink& link, const std::string& from, const std::string& to) {
  const std::string pair = absl::StrCat(from, " to ", to);
  if (!link.usable) {
    return absl::InvalidArgumentError(
        absl::StrCat(pair, " has usable: false, which cannot be emulated; leave one of the two out"));
  }
  const absl::Status status = ParseLinkProfile(ProfileOf(link)).status();
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(pair, ": ", status.message()));
}

absl::StatusOr<LocalNetwork> OfFile(const std::string& path, uint32_t workers) {
  ASSIGN_OR_RETURN(const WrittenFleet written, ReadFleetFile(path));
  const Fleet fleet = FleetWithoutTimes(written);
  const size_t there = fleet.workers.size();
  if (workers > there) {
    return absl::InvalidArgumentError(absl::StrCat("--workers: ", path, " has ", there, " workers, not ", workers,
                                                   "; leave the flag out to use all"));
  }
  if (workers == 0 && there > kMostWorkers) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", there, " workers, one machine carries at most ",
                                                   kMostWorkers, "; --workers N uses the first N"));
  }
  const LinkCosts links(fleet, /*frame_bytes=*/0);
  LocalNetwork network;
  const auto count = static_cast<uint32_t>(workers == 0 ? there : workers);
  for (uint32_t from = 0; from < count; ++from) {
    const FleetWorker& worker = fleet.workers[from];
    if (!worker.listens) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", worker.name, " has listens: false, which cannot be emulated; leave it out"));
    }
    network.workers.push_back({worker.name, static_cast<double>(worker.memory_bytes) / (1 << 30),
                               Mbit(worker.up_bytes_per_second), Mbit(worker.down_bytes_per_second)});
    for (uint32_t to = 0; to < count; ++to) {
      if (from == to) continue;
      const FleetLink& link = links.Directed(from, to);
      const absl::Status status = CheckLink(link, worker.name, fleet.workers[to].name);
      if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
      network.links.push_back({from, to, ProfileOf(link)});
    }
  }
  return network;
}

}  // namespace

absl::StatusOr<LocalNetwork> ReadLocalNetwork(const std::string& links, uint32_t workers) {
  if (workers > kMostWorkers) {
    return absl::InvalidArgumentError(absl::StrCat("--workers: allowed 1..", kMostWorkers, " on one machine"));
  }
  if (absl::EndsWith(links, ".yaml") || absl::EndsWith(links, ".yml")) return OfFile(links, workers);
  const absl::Status profile = ParseLinkProfile(links).status();
  if (!profile.ok()) return absl::InvalidArgumentError(absl::StrCat("--links: ", profile.message(), ", or FLEET.yaml"));
  return Uniform(links, workers == 0 ? kDefaultWorkers : workers);
}

}  // namespace stagecoach
