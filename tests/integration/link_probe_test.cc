// The probe of a link, through the emulator: what it measures is what the link was made to be.
#include "worker/link/link_probe.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/linkem/link_emulator.h"
#include "tests/support/link_ends.h"

namespace stagecoach {
namespace {

TEST(LinkProbeTest, EmulatedLink_IsMeasuredWithinTenPercent) {
  constexpr double kBytesPerSecond = 10e6;  // 80 Mbit/s
  constexpr double kRtt = 0.05;
  LinkPair pair(LinkKind::kGrpc);
  EmulatedLink link{"a", "b", 0, pair.address(), {}};
  link.shape.bytes_per_second = kBytesPerSecond;
  link.shape.delay = std::chrono::milliseconds(25);
  auto emulator = LinkEmulator::Create({link}, 1);
  ASSERT_TRUE(emulator.ok()) << emulator.status();
  std::thread thread([&] { EXPECT_TRUE((*emulator)->Run().ok()); });
  // Other programs on the machine can only slow a probe: the first of three that is right counts.
  auto result = ProbeLink(absl::StrCat("127.0.0.1:", (*emulator)->port(0)));
  for (int attempt = 1; attempt < 3 && result.ok() &&
                        (result->rtt_seconds > 1.1 * kRtt || result->bytes_per_second < 0.9 * kBytesPerSecond);
       ++attempt) {
    result = ProbeLink(absl::StrCat("127.0.0.1:", (*emulator)->port(0)));
  }
  (*emulator)->Stop();
  thread.join();
  ASSERT_TRUE(result.ok()) << result.status();
  RecordProperty("rtt_milliseconds", std::to_string(1000 * result->rtt_seconds));
  RecordProperty("megabytes_per_second", std::to_string(result->bytes_per_second / 1e6));
  EXPECT_NEAR(result->rtt_seconds, kRtt, 0.1 * kRtt);
  EXPECT_NEAR(result->bytes_per_second, kBytesPerSecond, 0.1 * kBytesPerSecond);
}

}  // namespace
}  // namespace stagecoach
