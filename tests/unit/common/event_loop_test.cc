#include "common/event_loop.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace stagecoach {
namespace {

TEST(ThreadEventLoop, PostedFunctions_RunInOrderOnTheLoop) {
  ThreadEventLoop loop("test");
  std::vector<int> seen;
  std::promise<void> done;
  EXPECT_FALSE(loop.InLoop());
  for (int i = 0; i < 100; ++i) loop.Post([&seen, i] { seen.push_back(i); });
  loop.Post([&] {
    EXPECT_TRUE(loop.InLoop());
    done.set_value();
  });
  done.get_future().wait();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(ThreadEventLoop, Timers_RunByTimeAndNotEarly) {
  ThreadEventLoop loop("test");
  std::vector<int> seen;
  std::promise<MonoTime> done;
  const MonoTime start = loop.Now();
  loop.PostAfter(std::chrono::milliseconds(20), [&] {
    seen.push_back(2);
    done.set_value(loop.Now());
  });
  loop.PostAfter(std::chrono::milliseconds(5), [&] { seen.push_back(1); });
  EXPECT_GE(done.get_future().get() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
}

TEST(ThreadEventLoop, Stop_RunsWhatWasPostedAndDropsTimers) {
  auto loop = std::make_unique<ThreadEventLoop>("test");
  int ran = 0;
  loop->PostAfter(std::chrono::hours(1), [&] { ran += 100; });
  loop->Post([&] { ++ran; });
  loop->Stop();
  loop->Post([&] { ran += 100; });
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace stagecoach
