#include "worker/main/stage_setup.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/scripted_fleet.h"

namespace stagecoach {
namespace {

AssignStage AnOrder(uint32_t stages, uint32_t stage) {
  AssignStage assign;
  *assign.mutable_record() = testing::FakeRunRecord(stages, 4, 2, 10, "/runs/x");
  Plan& plan = *assign.mutable_plan();
  plan.set_run("run-1");
  plan.set_cluster("main");
  plan.set_epoch(5);
  const uint32_t units = assign.record().spec().model().layers() + 2;
  for (uint32_t i = 0; i < stages; ++i) {
    StageAssignment* one = plan.add_stages();
    one->set_stage(i);
    one->set_first_unit(i == 0 ? 0 : i + 1);
    one->set_end_unit(i + 1 == stages ? units : i + 2);
    one->set_worker(absl::StrCat("w", i));
    one->set_incarnation(100 + i);
    one->set_address(absl::StrCat("host:", i));
    one->set_window(5 - i);
  }
  assign.set_stage(stage);
  return assign;
}

absl::StatusOr<StageOrder> Read(const AssignStage& assign, uint32_t stage) {
  return ReadStageOrder(assign, absl::StrCat("w", stage), 100 + stage,
                        [](const std::string& worker, const std::string& advertised) {
                          return worker == "w0" ? "emulated:9" : advertised;
                        });
}

TEST(StageSetupTest, MiddleStage_HasBothNeighbours) {
  const auto order = Read(AnOrder(3, 1), 1);
  ASSERT_TRUE(order.ok()) << order.status();
  ASSERT_TRUE(order->setup.above && order->setup.below);
  EXPECT_EQ(order->setup.above->address, "emulated:9");
  EXPECT_EQ(order->setup.below->address, "host:2");
  const StreamIdentity& in = order->setup.above->incoming;
  EXPECT_EQ(in.sender, "w0");
  EXPECT_EQ(in.sender_incarnation, 100u);
  EXPECT_EQ(in.receiver_incarnation, 101u);
  EXPECT_EQ(in.cut, 2u);
  EXPECT_EQ(in.rows, 16u);
  EXPECT_EQ(in.columns, 16u);
  EXPECT_EQ(in.direction, LinkDirection::kForward);
  EXPECT_EQ(order->setup.below->outgoing.direction, LinkDirection::kForward);
  EXPECT_EQ(order->setup.below->incoming.sender, "w2");
  EXPECT_EQ(order->setup.above->limits.tensor_bytes, 16u * 16 * 4);
  EXPECT_EQ(order->setup.core.window, 4u);
  EXPECT_EQ(order->executor.window, 4u);
}

TEST(StageSetupTest, BothEndsOfABoundary_NameTheSameStreams) {
  const auto upper = Read(AnOrder(2, 0), 0), lower = Read(AnOrder(2, 1), 1);
  ASSERT_TRUE(upper.ok() && lower.ok());
  EXPECT_FALSE(upper->setup.above || lower->setup.below);
  const auto same = [](const StreamIdentity& a, const StreamIdentity& b) {
    return a.sender == b.sender && a.sender_incarnation == b.sender_incarnation &&
           a.receiver_incarnation == b.receiver_incarnation && a.cut == b.cut && a.direction == b.direction &&
           a.epoch == b.epoch && a.rows == b.rows && a.columns == b.columns && a.wire_format == b.wire_format;
  };
  EXPECT_TRUE(same(upper->setup.below->outgoing, lower->setup.above->incoming));
  EXPECT_TRUE(same(upper->setup.below->incoming, lower->setup.above->outgoing));
}

TEST(StageSetupTest, EndStep_IsTheEarlierOfStopAndSchedule) {
  AssignStage assign = AnOrder(2, 0);
  EXPECT_EQ(Read(assign, 0)->setup.core.end_step, 10u);
  assign.set_stop_after_step(4);
  EXPECT_EQ(Read(assign, 0)->setup.core.end_step, 4u);
  assign.set_stop_after_step(400);
  EXPECT_EQ(Read(assign, 0)->setup.core.end_step, 10u);
}

TEST(StageSetupTest, OrdersThatDoNotFit_AreRefused) {
  const std::vector<std::function<void(AssignStage&)>> breaks = {
      [](AssignStage& a) { a.mutable_plan()->mutable_stages()->RemoveLast(); },
      [](AssignStage& a) { a.set_stage(7); },
      [](AssignStage& a) { a.mutable_plan()->mutable_stages(1)->set_worker("other"); },
      [](AssignStage& a) { a.mutable_plan()->mutable_stages(1)->set_incarnation(1); },
      [](AssignStage& a) { a.mutable_plan()->mutable_stages(1)->set_first_unit(3); },
      [](AssignStage& a) { a.mutable_plan()->mutable_stages(2)->set_window(0); },
      [](AssignStage& a) { a.set_first_step(10); },
      [](AssignStage& a) { a.mutable_record()->clear_j_table(); },
  };
  for (size_t i = 0; i < breaks.size(); ++i) {
    AssignStage assign = AnOrder(3, 1);
    breaks[i](assign);
    EXPECT_EQ(Read(assign, 1).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

}  // namespace
}  // namespace stagecoach
