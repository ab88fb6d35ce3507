#include "worker/domain/buffer_rotation.h"

#include <cstdio>
#include <cstdlib>

namespace stagecoach {
namespace {

// A wrong buffer would silently change the result of the run: stop the process instead.
void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fatal: buffer rotation: %s\n", what);
  std::abort();
}

}  // namespace

BufferRotation::BufferRotation(uint32_t num_buffers, uint64_t oldest_version, uint64_t newest_version)
    : newest_(newest_version) {
  Require(num_buffers >= newest_version - oldest_version + 2, "the pool is smaller than the live versions need");
  for (uint64_t version = oldest_version; version <= newest_version; ++version) {
    versions_[version] = static_cast<uint32_t>(version - oldest_version);
  }
  for (uint32_t buffer = num_buffers; buffer > versions_.size(); --buffer) free_.push_back(buffer - 1);
}

uint32_t BufferRotation::BufferOfVersion(uint64_t version) const {
  const auto found = versions_.find(version);
  Require(found != versions_.end(), "a version that is not alive was asked for");
  return found->second;
}

bool BufferRotation::HasVersion(uint64_t version) const { return versions_.count(version) != 0; }

uint32_t BufferRotation::AccumulatorOf(uint64_t step, bool* first) {
  const auto found = accumulators_.find(step);
  *first = found == accumulators_.end();
  if (!*first) return found->second;
  Require(!free_.empty(), "no buffer is free for the gradient sum of a new step");
  const uint32_t buffer = free_.back();
  free_.pop_back();
  accumulators_[step] = buffer;
  return buffer;
}

uint32_t BufferRotation::Promote(uint64_t step) {
  Require(step == newest_, "updates must run in order");
  const auto found = accumulators_.find(step);
  Require(found != accumulators_.end(), "the step that is promoted has no gradient sum");
  const uint32_t buffer = found->second;
  accumulators_.erase(found);
  versions_[++newest_] = buffer;
  return buffer;
}

void BufferRotation::ReleaseBelow(uint64_t version) {
  while (!versions_.empty() && versions_.begin()->first < version && versions_.begin()->first != newest_) {
    free_.push_back(versions_.begin()->second);
    versions_.erase(versions_.begin());
  }
}

}  // namespace stagecoach
