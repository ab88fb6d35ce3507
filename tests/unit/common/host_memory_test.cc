#include "common/host_memory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/host-memory-", getpid(), "-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    800 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(HostMemoryTest, WithoutCgroup_WhatTheMachineHasLeft) { EXPECT_EQ(AvailableMemoryBytes(root_), 800u * 1024); }

TEST_F(HostMemoryTest, CgroupV2_ItsLimitLessWhatIsInUse) {
  Write("/sys/fs/cgroup/memory.max", "500000\n");
  Write("/sys/fs/cgroup/memory.current", "300000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 200000u);
  Write("/sys/fs/cgroup/memory.stat", "anon 200000\ninactive_file 100000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 300000u);
  Write("/sys/fs/cgroup/memory.current", "700000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0u);
}

TEST_F(HostMemoryTest, CgroupV2_MaxIsNoLimit) {
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/memory.current", "300000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 800u * 1024);
}

TEST_F(HostMemoryTest, CgroupV1_ItsLimitLessWhatIsInUse) {
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 200000u);
}

TEST_F(HostMemoryTest, NothingReadable_DoesNotLimit) { EXPECT_GT(AvailableMemoryBytes("/nowhere"), uint64_t{1} << 60); }

}  // namespace
}  // namespace stagecoach
