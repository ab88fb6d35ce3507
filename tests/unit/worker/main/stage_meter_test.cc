#include "worker/main/stage_meter.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using namespace std::chrono_literals;

TEST(StageMeterTest, IdleTime_IsChargedToItsReason) {
  StageMeter meter;
  meter.Idle(10s, WaitReason::kInput);
  meter.Idle(12s, WaitReason::kInput);  // the same reason again: nothing is lost
  meter.Computing(13s);
  meter.Idle(20s, WaitReason::kGradient);
  WorkerCounters counters;
  meter.Fill(20500ms, &counters);
  EXPECT_DOUBLE_EQ(counters.waiting_seconds().at("input"), 3);
  EXPECT_DOUBLE_EQ(counters.waiting_seconds().at("gradient"), 0.5);
  EXPECT_EQ(counters.waiting_seconds().size(), 2u);
}

TEST(StageMeterTest, TimeBeforeTheStartAndAfterTheEnd_IsNotWaiting) {
  StageMeter meter;
  meter.Idle(100s, WaitReason::kNone);
  WorkerCounters counters;
  meter.Fill(200s, &counters);
  EXPECT_TRUE(counters.waiting_seconds().empty());
}

TEST(StageMeterTest, LagsAndBusySeconds_AreTotals) {
  StageMeter meter;
  meter.AddLag(0);
  meter.AddLag(1);
  meter.AddLag(1);
  meter.AddBusy(0.25);
  meter.AddBusy(0.5);
  WorkerCounters counters;
  meter.Fill(1s, &counters);
  EXPECT_EQ(counters.staleness().at(0), 1u);
  EXPECT_EQ(counters.staleness().at(1), 2u);
  EXPECT_DOUBLE_EQ(counters.busy_seconds(), 0.75);
}

}  // namespace
}  // namespace stagecoach
