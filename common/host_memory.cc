#include "common/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace stagecoach {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

uint64_t ReadNumber(const std::string& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;  // "max" does not parse: no limit
}

// The number behind `key` in a file of "key number" lines.
uint64_t ReadEntry(const std::string& path, const std::string& key, uint64_t otherwise) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  while (file >> word) {
    if (word == key && file >> value) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return otherwise;
}

uint64_t LeftOfCgroup(uint64_t limit, uint64_t used, uint64_t droppable) {
  used -= std::min(used, droppable);
  return limit == kNoLimit ? kNoLimit : limit - std::min(limit, used);
}

}  // namespace

uint64_t AvailableMemoryBytes(const std::string& root) {
  const uint64_t kilobytes = ReadEntry(root + "/proc/meminfo", "MemAvailable:", kNoLimit / 1024);
  const std::string v2 = root + "/sys/fs/cgroup/", v1 = v2 + "memory/";
  const uint64_t left_v2 = LeftOfCgroup(ReadNumber(v2 + "memory.max", kNoLimit), ReadNumber(v2 + "memory.current", 0),
                                        ReadEntry(v2 + "memory.stat", "inactive_file", 0));
  const uint64_t left_v1 =
      LeftOfCgroup(ReadNumber(v1 + "memory.limit_in_bytes", kNoLimit), ReadNumber(v1 + "memory.usage_in_bytes", 0),
                   ReadEntry(v1 + "memory.stat", "total_inactive_file", 0));
  return std::min({kilobytes * 1024, left_v2, left_v1});
}

}  // namespace stagecoach
