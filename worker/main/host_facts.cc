#include "worker/main/host_facts.h"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A line "Key:   123 kB" of a file of /proc, in bytes; 0 if it is not there.
uint64_t KilobyteLine(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    std::istringstream rest(line.substr(key.size() + 1));
    uint64_t kilobytes = 0;
    rest >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "host";
  return name;
}

}  // namespace

uint64_t ResidentBytes() { return KilobyteLine("/proc/self/status", "VmRSS"); }

std::string HostIdentity() { return absl::StrCat(FirstLine("/proc/sys/kernel/random/boot_id"), "/", HostName()); }

uint32_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  std::istringstream quota(FirstLine("/sys/fs/cgroup/cpu.max"));
  double microseconds = 0, period = 0;
  if (quota >> microseconds >> period && period > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(microseconds / period)));
  }
  return static_cast<uint32_t>(std::max(cores, 1));
}

std::string DefaultWorkerName() {
  std::string name;
  for (const char c : HostName()) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    name += std::isalnum(static_cast<unsigned char>(lower)) ? lower : '-';
  }
  name = name.substr(0, 40);  // leaves room for the process id below the limit of 63
  while (!name.empty() && name.front() == '-') name.erase(name.begin());
  if (name.empty()) name = "worker";
  return absl::StrCat(name, "-", getpid());
}

uint64_t RandomIncarnation() {
  uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof(value), 0) != sizeof(value)) value = static_cast<uint64_t>(getpid()) << 32 | 1;
  }
  return value;
}

}  // namespace stagecoach
