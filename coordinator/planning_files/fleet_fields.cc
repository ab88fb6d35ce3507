#include "coordinator/planning_files/fleet_fields.h"

namespace stagecoach {
namespace {

constexpr double kMostMilliseconds = 1e8;  // a day and more for one microbatch through one unit
constexpr double kMostMbit = 1e7;          // 10 Tbit/s

constexpr const char* kTimes = "milliseconds, 0..1e8";
constexpr const char* kRate = "0 < x <= 1e7";

}  // namespace

const FieldRules& FleetFields() {
  static const auto* const rules = new FieldRules{
      {"name", 0, 0, false, false, false, kNamePattern, "fleet", true},
      {"devices", 0, 1000, false, false, false, "0..1000 kinds of machine", "none"},
      {"devices.name", 0, 0, false, false, true, kNamePattern, "required", true},
      {"devices.tflops", 0, 1e6, true, false, false, "0 < x <= 1e6", "none: times are given"},
      {"devices.efficiency", 0, 1, true, false, false, "0 < x <= 1", "required with tflops"},
      {"devices.memory_gbyte_per_second", 0, 1e6, true, false, false, "0 < x <= 1e6",
       "not counted: updates take what their matrix products take"},
      {"devices.memory_gib", 0, 1e6, true, false, false, "0 < x <= 1e6", "no limit known"},
      {"devices.gpu", 0, 0, false, false, false, "true, false", "false"},
      {"devices.embedding", 0, 0, false, false, false, "times of a microbatch", "from tflops"},
      {"devices.embedding.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.embedding.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.embedding.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"devices.block", 0, 0, false, false, false, "times of a microbatch", "from tflops"},
      {"devices.block.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.block.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.block.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"devices.tail_block", 0, 0, false, false, false, "times of a microbatch", "from tflops"},
      {"devices.tail_block.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.tail_block.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.tail_block.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"devices.head", 0, 0, false, false, false, "times of a microbatch", "from tflops"},
      {"devices.head.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.head.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"devices.head.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"workers", 1, kMostFleetWorkers, false, false, true, "1..20000 rows", "required"},
      {"workers.name", 0, 0, false, false, true, kNamePattern, "required", true},
      {"workers.count", 1, kMostFleetWorkers, false, false, false, "1..20000", "one worker, called name"},
      {"workers.host", 0, 0, false, false, false, "a text", "each its own"},
      {"workers.region", 0, 0, false, false, false, kNamePattern, "none", true},
      {"workers.device", 0, 0, false, false, false, "the name of a device", "none: times are given here", true},
      {"workers.memory_gib", 0, 1e6, true, false, false, "0 < x <= 1e6", "that of the device"},
      {"workers.up_mbit", 0, kMostMbit, true, false, false, kRate, "not limited"},
      {"workers.up_mbit_to", 0, kMostMbit, true, false, false, kRate, "up_mbit"},
      {"workers.down_mbit", 0, kMostMbit, true, false, false, kRate, "not limited"},
      {"workers.down_mbit_to", 0, kMostMbit, true, false, false, kRate, "down_mbit"},
      {"workers.failures_per_hour", 0, 3600, false, false, false, "0..3600", "0"},
      {"workers.listens", 0, 0, false, false, false, "true, false", "true"},
      {"workers.embedding", 0, 0, false, false, false, "times of a microbatch", "those of the device"},
      {"workers.embedding.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.embedding.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.embedding.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"workers.block", 0, 0, false, false, false, "times of a microbatch", "those of the device"},
      {"workers.block.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.block.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.block.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"workers.tail_block", 0, 0, false, false, false, "times of a microbatch", "those of the device"},
      {"workers.tail_block.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.tail_block.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.tail_block.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"workers.head", 0, 0, false, false, false, "times of a microbatch", "those of the device"},
      {"workers.head.forward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.head.backward_ms", 0, kMostMilliseconds, false, false, true, kTimes, "required"},
      {"workers.head.update_ms", 0, kMostMilliseconds, false, false, false, kTimes, "0"},
      {"regions", 0, 100000, false, false, false, "0..100000 rows, one for each pair of regions", "none"},
      {"regions.from", 0, 0, false, false, true, kNamePattern, "required", true},
      {"regions.to", 0, 0, false, false, true, kNamePattern, "required", true},
      {"regions.rtt_ms", 0, 60000, false, false, false, "0..60000", "0"},
      {"regions.mbit", 0, kMostMbit, true, false, false, kRate, "not limited"},
      {"regions.usable", 0, 0, false, false, false, "true, false", "true"},
      {"links", 0, 1e6, false, false, false, "0..1000000 rows", "none"},
      {"links.from", 0, 0, false, false, true, kNamePattern, "required", true},
      {"links.to", 0, 0, false, false, true, kNamePattern, "required", true},
      {"links.rtt_ms", 0, 60000, false, false, false, "0..60000", "0"},
      {"links.mbit", 0, kMostMbit, true, false, false, kRate, "not limited"},
      {"links.usable", 0, 0, false, false, false, "true, false", "true"},
  };
  return *rules;
}

}  // namespace stagecoach
