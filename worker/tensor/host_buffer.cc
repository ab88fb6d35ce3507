#include "worker/tensor/host_buffer.h"

#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector load

// At least one line, so that empty buffers count too. Saturates instead of wrapping around.
size_t RoundedUp(size_t bytes) {
  if (bytes > SIZE_MAX - kAlignment) return SIZE_MAX;
  return bytes == 0 ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Memory handed back is kept for the next buffer of the same size (frames of a run have two or three sizes), within the
// cap; so the steady state asks the system for nothing.
class RecyclingPool final : public HostBufferPool, public std::enable_shared_from_this<RecyclingPool> {
 public:
  explicit RecyclingPool(size_t cap_bytes) : cap_(cap_bytes) {}
  ~RecyclingPool() override { EvictDownTo(0); }

  absl::StatusOr<std::shared_ptr<HostBuffer>> Allocate(size_t bytes) override;
  size_t bytes_in_use() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return in_use_;
  }
  void Return(uint8_t* memory, size_t capacity);

 private:
  void EvictDownTo(size_t free_bytes);

  const size_t cap_;
  mutable std::mutex mutex_;  // leaf lock
  size_t in_use_ = 0;         // handed out, rounded up to the alignment
  size_t free_ = 0;           // kept in free_by_size_
  std::map<size_t, std::vector<uint8_t*>> free_by_size_;
};

class PooledBuffer final : public HostBuffer {
 public:
  PooledBuffer(std::shared_ptr<RecyclingPool> pool, uint8_t* memory, size_t size, size_t capacity)
      : pool_(std::move(pool)), capacity_(capacity) {
    data_ = memory;
    size_ = size;
  }
  ~PooledBuffer() override { pool_->Return(data_, capacity_); }

 private:
  const std::shared_ptr<RecyclingPool> pool_;
  const size_t capacity_;
};

absl::StatusOr<std::shared_ptr<HostBuffer>> RecyclingPool::Allocate(size_t bytes) {
  uint8_t* memory = nullptr;
  const size_t capacity = RoundedUp(bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (capacity > cap_ - in_use_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("host buffer pool is full: ", bytes, " bytes asked for, ", in_use_, " of ", cap_, " in use"));
    }
    in_use_ += capacity;
    auto found = free_by_size_.find(capacity);
    if (found != free_by_size_.end()) {
      memory = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) free_by_size_.erase(found);
      free_ -= capacity;
    }
    EvictDownTo(cap_ - in_use_);
  }
  if (memory == nullptr) memory = static_cast<uint8_t*>(::operator new (capacity, std::align_val_t{kAlignment}));
  return std::shared_ptr<HostBuffer>(std::make_shared<PooledBuffer>(shared_from_this(), memory, bytes, capacity));
}

void RecyclingPool::Return(uint8_t* memory, size_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  in_use_ -= capacity;
  free_ += capacity;
  free_by_size_[capacity].push_back(memory);
}

void RecyclingPool::EvictDownTo(size_t free_bytes) {
  while (free_ > free_bytes) {
    auto largest = std::prev(free_by_size_.end());
    ::operator delete (largest->second.back(), std::align_val_t{kAlignment});
    free_ -= largest->first;
    largest->second.pop_back();
    if (largest->second.empty()) free_by_size_.erase(largest);
  }
}

}  // namespace

std::shared_ptr<HostBufferPool> HostBufferPool::Create(size_t cap_bytes) {
  return std::make_shared<RecyclingPool>(cap_bytes);
}

}  // namespace stagecoach
