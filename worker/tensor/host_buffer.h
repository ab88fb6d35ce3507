// A block of host memory for tensors on their way: 64-byte aligned, reference counted, taken from a pool with a cap.
//
// Threading: HostBufferPool is safe from any thread (leaf lock). A buffer has one writer, then many readers.
// Ownership: std::shared_ptr; the memory returns to its pool when the last reference goes, also after the pool object
// is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace stagecoach {

class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  absl::Span<uint8_t> bytes() { return {data_, size_}; }
  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }

 protected:
  HostBuffer() = default;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

using BufferRef = std::shared_ptr<const HostBuffer>;

class HostBufferPool {
 public:
  // cap_bytes: most bytes handed out at once; above it Allocate returns RESOURCE_EXHAUSTED.
  static std::shared_ptr<HostBufferPool> Create(size_t cap_bytes);
  virtual ~HostBufferPool() = default;
  virtual absl::StatusOr<std::shared_ptr<HostBuffer>> Allocate(size_t bytes) = 0;
  virtual size_t bytes_in_use() const = 0;
};

}  // namespace stagecoach
