#include "coordinator/planning_files/fleet_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "coordinator/planning_files/fleet_fields.h"

namespace stagecoach {
namespace {

// 20,000 workers with four measured kinds each, a line for each key.
constexpr YamlFormat kFormat = {FleetFields, 32u << 20, "a fleet", "examples/fleets/two-sites.yaml"};
constexpr size_t kMostNamesInMessage = 12;

absl::Status Invalid(const std::string& path, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text));
}

std::string SomeNames(const std::set<std::string>& names) {
  std::vector<std::string> first(names.begin(), names.end());
  const bool more = first.size() > kMostNamesInMessage;
  if (more) first.resize(kMostNamesInMessage);
  return absl::StrCat(absl::StrJoin(first, ", "), more ? ", ..." : "");
}

absl::Status CheckDevices(const FleetFile& file, std::set<std::string>* names) {
  for (int i = 0; i < file.devices_size(); ++i) {
    const DeviceRow& device = file.devices(i);
    const std::string path = absl::StrCat("devices[", i, "]");
    if (!names->insert(device.name()).second) return Invalid(path + ".name", device.name() + " is written twice");
    if ((device.tflops() > 0) != (device.efficiency() > 0)) {
      return Invalid(path + (device.tflops() > 0 ? ".efficiency" : ".tflops"),
                     "is missing: tflops and efficiency belong together");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkers(const FleetFile& file, const std::set<std::string>& devices, std::set<std::string>* names,
                          std::set<std::string>* regions) {
  for (int i = 0; i < file.workers_size(); ++i) {
    const FleetWorkerRow& row = file.workers(i);
    const std::string path = absl::StrCat("workers[", i, "]");
    if (!row.device().empty() && devices.count(row.device()) == 0) {
      return Invalid(path + ".device", absl::StrCat(row.device(), " is not among devices; allowed: ",
                                                    devices.empty() ? "none is written" : SomeNames(devices)));
    }
    for (const bool up : {true, false}) {
      const double last = up ? row.up_mbit_to() : row.down_mbit_to(), first = up ? row.up_mbit() : row.down_mbit();
      if (last > 0 && (first == 0 || row.count() < 2)) {
        return Invalid(absl::StrCat(path, up ? ".up_mbit_to" : ".down_mbit_to"),
                       absl::StrCat("needs ", up ? "up_mbit" : "down_mbit", " and a count of 2 or more"));
      }
    }
    regions->insert(row.region());
    for (uint32_t number = 0; number < std::max(1u, row.count()); ++number) {
      const std::string name = row.count() == 0 ? row.name() : absl::StrCat(row.name(), "-", number);
      if (!IsValidName(name)) return Invalid(path + ".name", absl::StrCat(name, " is longer than 63 characters"));
      if (!names->insert(name).second) return Invalid(path + ".name", absl::StrCat(name, " is there twice"));
      if (names->size() > kMostFleetWorkers) {
        return Invalid(path + ".count", absl::StrCat("more than ", kMostFleetWorkers, " workers in all"));
      }
    }
  }
  return absl::OkStatus();
}

template <typename Rows>
absl::Status CheckPairs(const Rows& rows, const char* list, const char* what, const std::set<std::string>& known,
                        std::set<std::pair<std::string, std::string>>* pairs) {
  for (int i = 0; i < rows.size(); ++i) {
    const std::string path = absl::StrCat(list, "[", i, "]");
    for (const bool from : {true, false}) {
      const std::string& end = from ? rows.Get(i).from() : rows.Get(i).to();
      if (known.count(end) > 0) continue;
      return Invalid(path + (from ? ".from" : ".to"),
                     absl::StrCat("no worker is ", what, " ", end, "; there are: ", SomeNames(known)));
    }
    if (!pairs->emplace(rows.Get(i).from(), rows.Get(i).to()).second) {
      return Invalid(path, absl::StrCat(rows.Get(i).from(), " to ", rows.Get(i).to(), " is written twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFleet(const FleetFile& file) {
  RETURN_IF_ERROR(CheckRequiredFields(FleetFields(), file));
  std::set<std::string> devices, workers, regions;
  RETURN_IF_ERROR(CheckDevices(file, &devices));
  RETURN_IF_ERROR(CheckWorkers(file, devices, &workers, &regions));
  std::set<std::pair<std::string, std::string>> region_pairs, worker_pairs;
  RETURN_IF_ERROR(CheckPairs(file.regions(), "regions", "in region", regions, &region_pairs));
  RETURN_IF_ERROR(CheckPairs(file.links(), "links", "called", workers, &worker_pairs));
  for (const std::string& from : regions) {
    for (const std::string& to : regions) {
      if (from >= to || region_pairs.count({from, to}) > 0 || region_pairs.count({to, from}) > 0) continue;
      return Invalid("regions", absl::StrCat("no row between ", from.empty() ? "workers without a region" : from,
                                             " and ", to, ": every two regions that have workers need one"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WrittenFleet> Checked(WrittenFleet written) {
  RETURN_IF_ERROR(PlaceYamlError(CheckFleet(written.file), written.file_name, written.lines));
  return written;
}

double BytesPerSecond(double mbit) { return mbit * 1e6 / 8; }
double Mbit(double bytes_per_second) { return bytes_per_second * 8 / 1e6; }
uint64_t Bytes(double gib) { return static_cast<uint64_t>(gib * (1 << 30)); }

const char* KeyOf(UnitKind kind) {
  constexpr const char* kKeys[kNumUnitKinds] = {"embedding", "block", "tail_block", "head"};
  return kKeys[static_cast<uint32_t>(kind)];
}

// Of a row of a worker or device; null: not written.
template <typename Row>
const UnitMilliseconds* TimesOf(const Row& row, UnitKind kind) {
  switch (kind) {
    case UnitKind::kEmbedding:
      return row.has_embedding() ? &row.embedding() : nullptr;
    case UnitKind::kBlock:
      return row.has_block() ? &row.block() : nullptr;
    case UnitKind::kTailBlock:
      return row.has_tail_block() ? &row.tail_block() : nullptr;
    case UnitKind::kHead:
      return row.has_head() ? &row.head() : nullptr;
  }
  return nullptr;
}

KindSeconds FromRates(const DeviceRow& device, const KindWork& work) {
  const double flops = device.tflops() * 1e12 * device.efficiency();
  KindSeconds seconds{work.forward_flops / flops, work.backward_flops / flops, work.update_flops / flops};
  if (device.memory_gbyte_per_second() > 0) {
    seconds.update += work.update_bytes / (device.memory_gbyte_per_second() * 1e9);
  }
  return seconds;
}

absl::StatusOr<std::vector<KindSeconds>> KindsOf(const FleetWorkerRow& row, const std::string& path,
                                                 const DeviceRow* device, const RunModel& model) {
  std::vector<KindSeconds> kinds(kNumUnitKinds);
  for (uint32_t k = 0; k < kNumUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const UnitMilliseconds* times = TimesOf(row, kind);
    if (times == nullptr && device != nullptr) times = TimesOf(*device, kind);
    if (times != nullptr) {
      kinds[k] = {times->forward_ms() / 1e3, times->backward_ms() / 1e3, times->update_ms() / 1e3};
    } else if (device != nullptr && device->tflops() > 0) {
      kinds[k] = FromRates(*device, model.work[k]);
    } else if (model.kind_used[k]) {
      return Invalid(absl::StrCat(path, ".", KeyOf(kind)),
                     "is missing: give measured times of every kind of unit of the model, or a device with tflops");
    }
  }
  return kinds;
}

std::map<std::string, const DeviceRow*> DevicesOf(const FleetFile& file) {
  std::map<std::string, const DeviceRow*> devices;
  for (const DeviceRow& device : file.devices()) devices[device.name()] = &device;
  return devices;
}

// first, ..., last, evenly.
double Spread(double first, double last, uint32_t number, uint32_t count) {
  return last == 0 || count < 2 ? first : first + (last - first) * number / (count - 1);
}

template <typename Row>
FleetLink LinkOf(const Row& row) {
  return {row.rtt_ms() / 1e3, BytesPerSecond(row.mbit()), !row.has_usable() || row.usable()};
}

// A row holds for the way back too, unless that has its own: those are written over it.
template <typename Rows, typename Index, typename Map>
void FillLinks(const Rows& rows, const Index& index, Map* links) {
  for (const auto& row : rows) (*links)[{index(row.to()), index(row.from())}] = LinkOf(row);
  for (const auto& row : rows) (*links)[{index(row.from()), index(row.to())}] = LinkOf(row);
}

void FillTimes(const KindSeconds& seconds, UnitMilliseconds* times) {
  times->set_forward_ms(seconds.forward * 1e3);
  times->set_backward_ms(seconds.backward * 1e3);
  times->set_update_ms(seconds.update * 1e3);
}

bool Same(const FleetLink& a, const FleetLink& b) {
  return a.rtt_seconds == b.rtt_seconds && a.bytes_per_second == b.bytes_per_second && a.usable == b.usable;
}

// One row for both directions where they are the same.
template <typename Map, typename Name, typename Add>
void WriteLinks(const Map& links, const Name& name, const Add& add) {
  for (const auto& [pair, link] : links) {
    const auto back = links.find({pair.second, pair.first});
    if (pair.second < pair.first && back != links.end() && Same(link, back->second)) continue;
    auto* row = add();
    row->set_from(name(pair.first));
    row->set_to(name(pair.second));
    row->set_rtt_ms(link.rtt_seconds * 1e3);
    row->set_mbit(Mbit(link.bytes_per_second));
    if (!link.usable) row->set_usable(false);
  }
}

}  // namespace

absl::StatusOr<WrittenFleet> ParseFleetFile(absl::string_view yaml, const std::string& file_name) {
  WrittenFleet written;
  written.file_name = file_name;
  RETURN_IF_ERROR(ReadYamlText(kFormat, yaml, file_name, &written.file, &written.lines));
  return Checked(std::move(written));
}

absl::StatusOr<WrittenFleet> ReadFleetFile(const std::string& path) {
  WrittenFleet written;
  written.file_name = path;
  RETURN_IF_ERROR(ReadYamlFile(kFormat, path, &written.file, &written.lines));
  return Checked(std::move(written));
}

bool AllWorkersAreGpus(const FleetFile& file) {
  std::set<std::string> gpus;
  for (const DeviceRow& device : file.devices()) {
    if (device.gpu()) gpus.insert(device.name());
  }
  for (const FleetWorkerRow& row : file.workers()) {
    if (gpus.count(row.device()) == 0) return false;
  }
  return true;
}

Fleet FleetWithoutTimes(const WrittenFleet& written) {
  Fleet fleet;
  const std::map<std::string, const DeviceRow*> devices = DevicesOf(written.file);
  std::map<std::string, uint32_t> index;
  for (const FleetWorkerRow& row : written.file.workers()) {
    const DeviceRow* device = row.device().empty() ? nullptr : devices.at(row.device());
    for (uint32_t number = 0; number < std::max(1u, row.count()); ++number) {
      FleetWorker worker;
      worker.name = row.count() == 0 ? row.name() : absl::StrCat(row.name(), "-", number);
      worker.host = row.host().empty() ? worker.name : row.host();
      worker.region = row.region();
      worker.memory_bytes = Bytes(row.memory_gib() > 0 ? row.memory_gib()
                                  : device != nullptr  ? device->memory_gib()
                                                       : 0);
      worker.up_bytes_per_second = BytesPerSecond(Spread(row.up_mbit(), row.up_mbit_to(), number, row.count()));
      worker.down_bytes_per_second = BytesPerSecond(Spread(row.down_mbit(), row.down_mbit_to(), number, row.count()));
      worker.failures_per_hour = row.failures_per_hour();
      worker.listens = !row.has_listens() || row.listens();
      index[worker.name] = static_cast<uint32_t>(fleet.workers.size());
      fleet.workers.push_back(std::move(worker));
    }
  }
  FillLinks(
      written.file.regions(), [](const std::string& name) { return name; }, &fleet.regions);
  FillLinks(
      written.file.links(), [&](const std::string& name) { return index.at(name); }, &fleet.links);
  return fleet;
}

absl::StatusOr<Fleet> FleetFor(const WrittenFleet& written, const RunModel& model) {
  Fleet fleet = FleetWithoutTimes(written);
  const std::map<std::string, const DeviceRow*> devices = DevicesOf(written.file);
  auto worker = fleet.workers.begin();
  for (int i = 0; i < written.file.workers_size(); ++i) {
    const FleetWorkerRow& row = written.file.workers(i);
    const DeviceRow* device = row.device().empty() ? nullptr : devices.at(row.device());
    const auto kinds = KindsOf(row, absl::StrCat("workers[", i, "]"), device, model);
    if (!kinds.ok()) return PlaceYamlError(kinds.status(), written.file_name, written.lines);
    for (uint32_t number = 0; number < std::max(1u, row.count()); ++number) (worker++)->kinds = *kinds;
  }
  return fleet;
}

FleetFile FileOfFleet(const Fleet& fleet, const RunModel& model) {
  FleetFile file;
  for (const FleetWorker& worker : fleet.workers) {
    FleetWorkerRow* row = file.add_workers();
    row->set_name(worker.name);
    if (worker.host != worker.name) row->set_host(worker.host);
    row->set_region(worker.region);
    row->set_memory_gib(static_cast<double>(worker.memory_bytes) / (1 << 30));
    row->set_up_mbit(Mbit(worker.up_bytes_per_second));
    row->set_down_mbit(Mbit(worker.down_bytes_per_second));
    row->set_failures_per_hour(worker.failures_per_hour);
    if (!worker.listens) row->set_listens(false);
    const auto kind = [&](UnitKind of) { return static_cast<uint32_t>(of); };
    const auto measured = [&](UnitKind of) { return kind(of) < worker.kinds.size() && model.kind_used[kind(of)]; };
    const auto seconds = [&](UnitKind of) { return worker.kinds[kind(of)]; };
    if (measured(UnitKind::kEmbedding)) FillTimes(seconds(UnitKind::kEmbedding), row->mutable_embedding());
    if (measured(UnitKind::kBlock)) FillTimes(seconds(UnitKind::kBlock), row->mutable_block());
    if (measured(UnitKind::kTailBlock)) FillTimes(seconds(UnitKind::kTailBlock), row->mutable_tail_block());
    if (measured(UnitKind::kHead)) FillTimes(seconds(UnitKind::kHead), row->mutable_head());
  }
  WriteLinks(
      fleet.regions, [](const std::string& name) { return name; }, [&] { return file.add_regions(); });
  WriteLinks(
      fleet.links, [&](uint32_t worker) { return fleet.workers[worker].name; }, [&] { return file.add_links(); });
  return file;
}

}  // namespace stagecoach
