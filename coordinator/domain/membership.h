// The workers of the fleet: who they are, which life of each counts, who has fallen silent.
//
//   Register -> live --silence > suspect_after--> suspect --silence > dead_after--> reported dead, removed
//                 ^------------ heartbeat ------------'
// A name belongs to the process that has it: another one is refused while that is live, so that a second process
// started by mistake does not end its run. A suspect one is replaced: its messages are ABORTED from then on, and it
// cannot come back. The name of a removed one is free.
//
// Threading: a value, confined to the coordinator loop. Time is an argument.
// Errors: INVALID_ARGUMENT (names, limits), ALREADY_EXISTS (the name of a live worker), ABORTED (stale incarnation),
// RESOURCE_EXHAUSTED (fleet is full).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

using MonoTime = std::chrono::nanoseconds;
using Duration = std::chrono::nanoseconds;

struct WorkerDescription {
  std::string name;
  uint64_t incarnation = 0;
  std::string address, device, host;
  uint32_t cores = 1;
  uint64_t memory_limit_bytes = 0;  // free on its host or device, shared with the other workers there
  uint64_t memory_cap_bytes = 0;    // the operator's limit of this worker alone; 0 = none
  std::string version, torch_version, cpu_capability;
};

class Membership {
 public:
  struct Options {
    size_t max_workers = 20000;                        // 07 section 3: tables are sized from it
    Duration suspect_after = std::chrono::seconds(3);  // 01 section 8; at least three heartbeats
    Duration dead_after = std::chrono::seconds(8);     // a lost worker ends its run within 15 s
  };
  struct Silence {
    std::string name;
    uint64_t incarnation = 0;
    bool dead = false;  // else newly suspect
  };

  explicit Membership(const Options& options) : options_(options) {}

  // Returns the incarnation that was replaced, 0 if there was none.
  absl::StatusOr<uint64_t> Register(MonoTime now, const WorkerDescription& worker);
  // Any message of a worker counts as a sign of life.
  absl::Status Heard(MonoTime now, absl::string_view name, uint64_t incarnation);
  // Forgets this life of the worker; a newer one is left alone.
  void Remove(absl::string_view name, uint64_t incarnation);
  // Those that became suspect or dead since the last call. The dead are removed.
  std::vector<Silence> OnTick(MonoTime now);

  // clamp(workers / 4000 per s, 0.25 s, 5 s): bounds what heartbeats cost the coordinator (01 section 8).
  Duration HeartbeatInterval() const;
  const WorkerDescription* Find(absl::string_view name) const;
  bool IsSuspect(absl::string_view name) const;
  std::vector<std::string> Names() const;  // ascending
  size_t size() const { return workers_.size(); }

 private:
  struct Member {
    WorkerDescription description;
    MonoTime heard{0};
    bool suspect = false;
  };
  Duration SuspectAfter() const;

  Options options_;
  std::map<std::string, Member> workers_;
  // Lives that were replaced. A late message of one that is no longer listed still differs from the current
  // incarnation; the list only stops it from registering again, so the oldest entries may go.
  std::map<std::string, std::deque<uint64_t>> replaced_;
};

}  // namespace stagecoach
