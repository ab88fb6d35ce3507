// The arithmetic of an emulated link, and its written forms.
#include "cli/linkem/link_clock.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cli/linkem/link_emulator_config.h"
#include "cli/linkem/link_path.h"
#include "common/link_profile.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

using std::chrono::milliseconds;

LinkShape Megabyte(LinkTime delay) { return {1e6, delay, LinkTime(0), 0}; }  // 1 byte a microsecond

TEST(LinkClockTest, OnePiece_ArrivesAfterSerialisationAndDelay) {
  LinkClock clock(Megabyte(milliseconds(25)), 1, 0);
  EXPECT_EQ(clock.Admit(milliseconds(1000), 1000), milliseconds(1026));
}

TEST(LinkClockTest, PiecesOfOneInstant_QueueBehindEachOther) {
  LinkClock clock(Megabyte(milliseconds(25)), 1, 0);
  clock.Admit(milliseconds(0), 5000);
  EXPECT_EQ(clock.Admit(milliseconds(0), 5000), milliseconds(35));
  EXPECT_EQ(clock.bytes(), 10000u);
}

TEST(LinkClockTest, IdleTime_IsNotSavedUp) {
  LinkClock clock(Megabyte(milliseconds(0)), 1, 0);
  clock.Admit(milliseconds(0), 1000);
  EXPECT_EQ(clock.Admit(milliseconds(500), 1000), milliseconds(501));
}

TEST(LinkClockTest, BusyLink_IsNotReadyUntilItsWorkIsNearlyDone) {
  LinkClock clock(Megabyte(milliseconds(0)), 1, 0);
  EXPECT_TRUE(clock.Ready(milliseconds(0)));
  clock.Admit(milliseconds(0), 50000);  // 50 ms of work
  EXPECT_FALSE(clock.Ready(milliseconds(20)));
  EXPECT_TRUE(clock.Ready(clock.ReadyAt()));
  EXPECT_LE(clock.ReadyAt(), milliseconds(50));
}

TEST(LinkClockTest, Jitter_KeepsOrderAndBounds) {
  LinkShape shape{0, milliseconds(50), milliseconds(10), 0};
  LinkClock clock(shape, 1, 0);
  LinkTime last{0};
  bool early = false, late = false;
  for (int i = 0; i < 1000; ++i) {
    const LinkTime now = milliseconds(100 * i);
    const LinkTime due = clock.Admit(now, 100);
    EXPECT_GE(due, last);
    EXPECT_GE(due - now, milliseconds(40));
    EXPECT_LE(due - now, milliseconds(60));
    early |= due - now < milliseconds(45);
    late |= due - now > milliseconds(55);
    last = due;
  }
  EXPECT_TRUE(early && late);
}

TEST(LinkClockTest, Losses_StallForATimeoutAtTheGivenRate) {
  LinkShape shape{0, milliseconds(50), LinkTime(0), 0.01};
  LinkClock clock(shape, 1, 0);
  int stalled = 0;
  for (int i = 0; i < 10000; ++i) {
    const LinkTime now = std::chrono::seconds(i);
    if (clock.Admit(now, 1460) - now >= milliseconds(250)) ++stalled;
  }
  EXPECT_EQ(static_cast<uint64_t>(stalled), clock.losses());
  EXPECT_NEAR(stalled, 100, 40);
}

TEST(LinkClockTest, SameSeed_SameJitter) {
  LinkShape shape{1e6, milliseconds(50), milliseconds(10), 0.01};
  LinkClock a(shape, 7, 3), b(shape, 7, 3), other(shape, 7, 4);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const LinkTime due = a.Admit(milliseconds(100 * i), 2000);
    EXPECT_EQ(due, b.Admit(milliseconds(100 * i), 2000));
    differs |= due != other.Admit(milliseconds(100 * i), 2000);
  }
  EXPECT_TRUE(differs);
}

TEST(LinkPathTest, SlowestQueue_DecidesAndTheDelayIsAddedOnce) {
  LinkClock up({2e6}, 1, 0), down({0.5e6}, 1, 1), pair(Megabyte(milliseconds(25)), 1, 2);
  LinkPath path(&up, &pair, &down);
  EXPECT_EQ(path.Admit(milliseconds(0), 5000), milliseconds(35));
  EXPECT_FALSE(path.Ready(milliseconds(0)));
  EXPECT_EQ(path.ReadyAt(), down.ReadyAt());
  // What another pair sends through the same uplink waits behind it.
  LinkClock other_pair({0}, 1, 3);
  EXPECT_EQ(LinkPath(&up, &other_pair, nullptr).Admit(milliseconds(0), 2000), LinkTime(3'500'000));
}

TEST(LinkProfileTest, WrittenForms_Parse) {
  const auto profile = ParseLinkProfile("80mbit/50ms/2ms/0.1%");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_DOUBLE_EQ(profile->bytes_per_second, 1e7);
  EXPECT_EQ(profile->one_way_delay, milliseconds(25));
  EXPECT_EQ(profile->jitter, milliseconds(2));
  EXPECT_DOUBLE_EQ(profile->loss, 0.001);
  EXPECT_EQ(ParseLinkProfile("none")->bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(ParseLinkProfile("1gbit/0.5s")->bytes_per_second, 1.25e8);
}

TEST(LinkProfileTest, WrongText_NamesThePartAndWhatIsAllowed) {
  for (const char* text : {"", "80", "80mbit", "80mbit/50", "fast/50ms", "80mbit/50ms/40ms", "0mbit/1ms", "1mbit/11s",
                           "1mbit/1ms/0ms/80%", "1mbit/1ms/0ms/0%/1", "-1mbit/1ms", "nanmbit/1ms"}) {
    const auto profile = ParseLinkProfile(text);
    ASSERT_FALSE(profile.ok()) << text;
    EXPECT_NE(profile.status().message().find("80mbit/50ms"), absl::string_view::npos) << profile.status();
  }
}

TEST(LinkArgumentTest, Parts_AreTakenApart) {
  const auto link = ParseLinkArgument("w0:w1=127.0.0.1:0->@/run/ports/w1", Megabyte(milliseconds(1)));
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->from, "w0");
  EXPECT_EQ(link->to, "w1");
  EXPECT_EQ(link->listen_port, 0);
  EXPECT_EQ(link->target, "@/run/ports/w1");
  for (const char* text : {"", "a:b", "a=127.0.0.1:0->x", "a:b=0.0.0.0:0->127.0.0.1:1", "a:b=127.0.0.1:99999->x:1"}) {
    EXPECT_FALSE(ParseLinkArgument(text, LinkShape()).ok()) << text;
  }
}

TEST(LinkConfigTest, File_GivesEachLinkItsProfile) {
  testing::TemporaryFolder folder;
  const std::string path = folder.Write("links.yaml",
                                        "seed: 5\nprofile: 80mbit/50ms\nlinks:\n"
                                        "  - {from: a, to: b, target: \"127.0.0.1:5000\"}\n"
                                        "  - {from: a, to: c, target: \"127.0.0.1:5001\", profile: 10mbit/150ms}\n"
                                        "ends:\n  - {name: a, up: 20mbit}\n  - {name: b, up: 1gbit, down: 8mbit}\n");
  const auto config = ReadLinkEmulatorConfig(path, "none");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->seed, 5u);
  EXPECT_DOUBLE_EQ(config->links[0].shape.bytes_per_second, 1e7);
  EXPECT_EQ(config->links[1].shape.delay, milliseconds(75));
  EXPECT_DOUBLE_EQ(config->ends[0].up_bytes_per_second, 2.5e6);
  EXPECT_EQ(config->ends[0].down_bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(config->ends[1].down_bytes_per_second, 1e6);
  const auto rate =
      ReadLinkEmulatorConfig(folder.Write("rate.yaml", "links: []\nends:\n  - {name: a, up: 20}\n"), "none");
  EXPECT_NE(rate.status().message().find("rate.yaml:3: '20' is not a rate of 1kbit..100gbit"), absl::string_view::npos)
      << rate.status();
  const auto wrong = ReadLinkEmulatorConfig(folder.Write("wrong.yaml", "links: []\nprofiel: x\n"), "none");
  EXPECT_NE(wrong.status().message().find("wrong.yaml:2: profiel: unknown key"), absl::string_view::npos)
      << wrong.status();
}

TEST(ResolveTargetTest, PortFile_MayHoldAPortOrAnAddress) {
  testing::TemporaryFolder folder;
  EXPECT_EQ(ResolveTarget(absl::StrCat("@", folder.Write("p", "5000\n")))->second, 5000);
  EXPECT_EQ(ResolveTarget(absl::StrCat("@", folder.Write("q", "127.0.0.1:6000\n")))->second, 6000);
  EXPECT_TRUE(absl::IsNotFound(ResolveTarget(absl::StrCat("@", folder.File("none"))).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ResolveTarget("somewhere:1").status()));
}

}  // namespace
}  // namespace stagecoach
