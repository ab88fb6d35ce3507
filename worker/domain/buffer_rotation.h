// The pool of tau + 2 buffers of a stage, whose roles rotate: weights of a version, gradient sum of a step, free.
//
// W^(t+1) is written over the gradient sum g_t; a version v < newest is free when version(next backward) > v and no pin
// holds it; the next accumulator takes a free buffer. Writing to a buffer that is not free is a fatal assertion.
// At the start buffer b holds version VersionOf(first_step * M) + b, up to version first_step.
//
// Threading: a value, confined like its owner.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace stagecoach {

class BufferRotation {
 public:
  // num_buffers >= newest - oldest + 2.
  BufferRotation(uint32_t num_buffers, uint64_t oldest_version, uint64_t newest_version);

  uint32_t BufferOfVersion(uint64_t version) const;  // precondition: alive
  bool HasVersion(uint64_t version) const;
  // Buffer of the gradient sum of `step`; takes a free one at the first call for that step (*first = true).
  uint32_t AccumulatorOf(uint64_t step, bool* first);
  // W^(step+1) now lives where g_step was. Returns that buffer.
  uint32_t Promote(uint64_t step);
  // Every version below `version` that is not the newest is free from now on.
  void ReleaseBelow(uint64_t version);
  uint64_t newest() const { return newest_; }

 private:
  std::map<uint64_t, uint32_t> versions_, accumulators_;
  std::vector<uint32_t> free_;
  uint64_t newest_;
};

}  // namespace stagecoach
