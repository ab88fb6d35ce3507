#include "worker/tensor/host_buffer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace stagecoach {
namespace {

TEST(HostBufferTest, Memory_IsAlignedAndOfTheSizeAskedFor) {
  const auto pool = HostBufferPool::Create(1 << 20);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{1000}}) {
    const auto buffer = pool->Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->bytes().data()) % 64, 0u);
  }
  EXPECT_EQ(pool->bytes_in_use(), 0u);
}

TEST(HostBufferTest, AboveTheCap_ResourceExhausted) {
  const auto pool = HostBufferPool::Create(4096);
  const auto first = pool->Allocate(3000);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(pool->Allocate(2000).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(pool->Allocate(SIZE_MAX).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(pool->Allocate(SIZE_MAX - 10).status()));
  EXPECT_TRUE(pool->Allocate(1000).ok());
}

TEST(HostBufferTest, SameSizeAgain_ReusesTheMemory) {
  const auto pool = HostBufferPool::Create(1 << 20);
  const uint8_t* const first = (*pool->Allocate(5000))->bytes().data();
  EXPECT_EQ((*pool->Allocate(5000))->bytes().data(), first);
}

TEST(HostBufferTest, OtherSizes_DoNotPileUpBeyondTheCap) {
  const auto pool = HostBufferPool::Create(64 * 100);
  for (size_t bytes = 64; bytes <= 64 * 100; bytes += 64) EXPECT_TRUE(pool->Allocate(bytes).ok()) << bytes;
}

TEST(HostBufferTest, BufferOutlivesItsPool) {
  auto pool = HostBufferPool::Create(1 << 20);
  auto buffer = *pool->Allocate(100);
  pool.reset();
  buffer->bytes()[99] = 1;
  EXPECT_EQ(buffer->bytes()[99], 1);
}

TEST(HostBufferTest, ManyThreads_EndWithNothingInUse) {
  const auto pool = HostBufferPool::Create(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (size_t i = 0; i < 2000; ++i) {
        const auto buffer = pool->Allocate(64 * (1 + (i * 7 + t) % 50));
        if (buffer.ok()) (*buffer)->bytes()[0] = 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->bytes_in_use(), 0u);
}

}  // namespace
}  // namespace stagecoach
