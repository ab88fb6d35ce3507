#include "coordinator/domain/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr size_t kReplacedPerName = 16;   // a worker that restarts in a loop must not grow the table
constexpr size_t kReplacedNames = 20000;  // as many as workers

}  // namespace

absl::StatusOr<uint64_t> Membership::Register(MonoTime now, const WorkerDescription& worker) {
  if (worker.incarnation == 0) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker.name, " has no incarnation"));
  }
  const auto replaced = replaced_.find(worker.name);
  if (replaced != replaced_.end() &&
      std::find(replaced->second.begin(), replaced->second.end(), worker.incarnation) != replaced->second.end()) {
    return absl::AbortedError(absl::StrCat("worker ", worker.name,
                                           " was replaced by a newer process of the same name; give it another name"));
  }
  const auto found = workers_.find(worker.name);
  if (found == workers_.end()) {
    if (workers_.size() >= options_.max_workers) {
      return absl::ResourceExhaustedError(absl::StrCat("the fleet is full: ", workers_.size(), " workers"));
    }
    workers_[worker.name] = Member{worker, now, false};
    return 0;
  }
  const uint64_t previous = found->second.description.incarnation;
  if (previous != worker.incarnation && !found->second.suspect) {
    return absl::AlreadyExistsError(absl::StrCat("worker ", worker.name, " is connected already, from ",
                                                 found->second.description.address,
                                                 "; give this one another --name, or stop that one first"));
  }
  found->second = Member{worker, now, false};
  if (previous == worker.incarnation) return 0;
  if (replaced == replaced_.end() && replaced_.size() >= kReplacedNames) replaced_.erase(replaced_.begin());
  auto& lives = replaced_[worker.name];
  lives.push_back(previous);
  if (lives.size() > kReplacedPerName) lives.pop_front();
  return previous;
}

absl::Status Membership::Heard(MonoTime now, absl::string_view name, uint64_t incarnation) {
  const auto found = workers_.find(std::string(name));
  if (found == workers_.end()) {
    return absl::AbortedError(
        absl::StrCat("worker ", name, " is not registered (it was silent too long); register again"));
  }
  if (found->second.description.incarnation != incarnation) {
    return absl::AbortedError(absl::StrCat("worker ", name, " was replaced by a newer process of the same name"));
  }
  found->second.heard = now;
  found->second.suspect = false;
  return absl::OkStatus();
}

void Membership::Remove(absl::string_view name, uint64_t incarnation) {
  const auto found = workers_.find(std::string(name));
  if (found != workers_.end() && found->second.description.incarnation == incarnation) workers_.erase(found);
}

std::vector<Membership::Silence> Membership::OnTick(MonoTime now) {
  std::vector<Silence> result;
  const Duration suspect_after = SuspectAfter();
  const Duration dead_after = std::max(options_.dead_after, suspect_after + 2 * HeartbeatInterval());
  for (auto it = workers_.begin(); it != workers_.end();) {
    Member& member = it->second;
    const Duration silence = now - member.heard;
    if (silence > dead_after) {
      result.push_back({it->first, member.description.incarnation, true});
      it = workers_.erase(it);
      continue;
    }
    if (silence > suspect_after && !member.suspect) {
      member.suspect = true;
      result.push_back({it->first, member.description.incarnation, false});
    }
    ++it;
  }
  return result;
}

Duration Membership::HeartbeatInterval() const {
  const Duration wanted = std::chrono::microseconds(workers_.size() * 250);  // 4,000 heartbeats a second in all
  return std::clamp<Duration>(wanted, std::chrono::milliseconds(250), std::chrono::seconds(5));
}

Duration Membership::SuspectAfter() const { return std::max(options_.suspect_after, 3 * HeartbeatInterval()); }

const WorkerDescription* Membership::Find(absl::string_view name) const {
  const auto found = workers_.find(std::string(name));
  return found == workers_.end() ? nullptr : &found->second.description;
}

bool Membership::IsSuspect(absl::string_view name) const {
  const auto found = workers_.find(std::string(name));
  return found != workers_.end() && found->second.suspect;
}

std::vector<std::string> Membership::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : workers_) names.push_back(name);
  return names;
}

}  // namespace stagecoach
