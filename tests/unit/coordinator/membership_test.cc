#include "coordinator/domain/membership.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

WorkerDescription AWorker(const std::string& name, uint64_t incarnation) {
  WorkerDescription worker;
  worker.name = name;
  worker.incarnation = incarnation;
  return worker;
}

TEST(MembershipTest, NewIncarnation_ReplacesASuspectOne) {
  Membership fleet({});
  EXPECT_EQ(fleet.Register(seconds(0), AWorker("w", 1)).value(), 0u);
  ASSERT_EQ(fleet.OnTick(seconds(4)).size(), 1u);
  EXPECT_EQ(fleet.Register(seconds(4), AWorker("w", 2)).value(), 1u);
  EXPECT_EQ(fleet.Find("w")->incarnation, 2u);
  EXPECT_EQ(fleet.size(), 1u);
}

// It replaced the first one, whose run ended.
TEST(MembershipTest, NameOfALiveWorker_IsRefused) {
  Membership fleet({});
  ASSERT_TRUE(fleet.Register(seconds(0), AWorker("w", 1)).ok());
  const absl::Status second = fleet.Register(seconds(2), AWorker("w", 2)).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.message().find("another --name"), absl::string_view::npos) << second;
  EXPECT_EQ(fleet.Heard(seconds(2), "w", 1), absl::OkStatus());
  EXPECT_EQ(fleet.Register(seconds(2), AWorker("w", 1)).value(), 0u);  // another stream of the same life
  fleet.Remove("w", 1);                                                // its session ended: the name is free at once
  EXPECT_EQ(fleet.Register(seconds(2), AWorker("w", 2)).value(), 0u);
}

TEST(MembershipTest, StaleIncarnation_IsAborted) {
  Membership fleet({});
  ASSERT_TRUE(fleet.Register(seconds(0), AWorker("w", 1)).ok());
  fleet.OnTick(seconds(4));
  ASSERT_TRUE(fleet.Register(seconds(4), AWorker("w", 2)).ok());
  EXPECT_EQ(fleet.Heard(seconds(5), "w", 1).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(fleet.Register(seconds(5), AWorker("w", 1)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(fleet.Heard(seconds(5), "w", 2), absl::OkStatus());
  fleet.Remove("w", 1);  // of the old life: the new one stays
  EXPECT_NE(fleet.Find("w"), nullptr);
}

TEST(MembershipTest, UnknownWorker_IsAborted) {
  Membership fleet({});
  EXPECT_EQ(fleet.Heard(seconds(1), "w", 1).code(), absl::StatusCode::kAborted);
}

TEST(MembershipTest, SilentWorker_IsSuspectThenDead) {
  Membership fleet({});
  ASSERT_TRUE(fleet.Register(seconds(0), AWorker("a", 1)).ok());
  ASSERT_TRUE(fleet.Register(seconds(0), AWorker("b", 2)).ok());
  EXPECT_TRUE(fleet.OnTick(seconds(3)).empty());
  ASSERT_TRUE(fleet.Heard(seconds(3), "b", 2).ok());
  auto silent = fleet.OnTick(milliseconds(3001));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].name, "a");
  EXPECT_FALSE(silent[0].dead);
  EXPECT_TRUE(fleet.IsSuspect("a"));
  EXPECT_TRUE(fleet.OnTick(milliseconds(3002)).empty());  // said once
  ASSERT_TRUE(fleet.Heard(seconds(8), "b", 2).ok());
  silent = fleet.OnTick(milliseconds(8001));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].name, "a");
  EXPECT_TRUE(silent[0].dead);
  EXPECT_EQ(fleet.Find("a"), nullptr);
  EXPECT_NE(fleet.Find("b"), nullptr);
}

TEST(MembershipTest, SuspectThatIsHeard_IsLiveAgain) {
  Membership fleet({});
  ASSERT_TRUE(fleet.Register(seconds(0), AWorker("a", 1)).ok());
  ASSERT_EQ(fleet.OnTick(seconds(4)).size(), 1u);
  ASSERT_TRUE(fleet.Heard(seconds(5), "a", 1).ok());
  EXPECT_FALSE(fleet.IsSuspect("a"));
  EXPECT_TRUE(fleet.OnTick(seconds(7)).empty());
}

TEST(MembershipTest, HeartbeatInterval_GrowsWithTheFleet) {
  Membership fleet({});
  EXPECT_EQ(fleet.HeartbeatInterval(), milliseconds(250));
  for (int i = 0; i < 4000; ++i) ASSERT_TRUE(fleet.Register(seconds(0), AWorker(absl::StrCat("w", i), i + 1)).ok());
  EXPECT_EQ(fleet.HeartbeatInterval(), seconds(1));
}

TEST(MembershipTest, FullFleet_RefusesMore) {
  Membership::Options options;
  options.max_workers = 1;
  Membership fleet(options);
  ASSERT_TRUE(fleet.Register(seconds(0), AWorker("a", 1)).ok());
  EXPECT_EQ(fleet.Register(seconds(0), AWorker("b", 1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(fleet.Register(seconds(0), AWorker("a", 1)).ok());  // it comes back by another stream
}

}  // namespace
}  // namespace stagecoach
