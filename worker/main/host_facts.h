// What a worker tells the coordinator about its machine.
//
// Threading: any thread; each call reads files of /proc and /sys (microseconds).
// Errors: none; what cannot be read is left out (0 or a conservative value).
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

uint64_t ResidentBytes();         // of this process
std::string HostIdentity();       // boot id and host name: equal for all processes of one running machine
uint32_t UsableCores();           // affinity mask, cut by the cgroup's CPU quota; at least 1
std::string DefaultWorkerName();  // host name and process id, in the form that worker names have
uint64_t RandomIncarnation();     // from the kernel; never 0

}  // namespace stagecoach
