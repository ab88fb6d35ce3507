// The run machine when a worker is lost and the run goes on without it.
#include <set>
#include <string>

#include "coordinator/domain/run_machine.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using std::chrono::seconds;

RunMachine::Options ThreeWorkers() {
  RunMachine::Options options;
  options.workers_wanted = 3;
  options.max_stages = 8;
  options.total_steps = 10;
  options.replan = {true, 2};
  return options;
}

RunMachine Running(const RunMachine::Options& options) {
  RunMachine machine(options);
  machine.OnFreeWorkers(seconds(1), {"a", "b", "c"});
  for (const char* worker : {"a", "b", "c"}) machine.OnWorkerProbed(seconds(1), worker, "");
  for (const auto& [from, to] : {std::pair("a", "b"), {"b", "a"}, {"b", "c"}, {"c", "b"}}) {
    machine.OnLinkProbed(seconds(1), from, to, "");
  }
  machine.OnPlanned(seconds(1), 10, {});
  for (const char* worker : {"a", "b", "c"}) machine.OnStageReady(seconds(1), worker);
  EXPECT_EQ(machine.phase(), RunPhase::kRunning);
  return machine;
}

TEST(RunMachineReplanTest, LostWorker_OnlyTheNewLinkIsMeasuredAndTheRunGoesOn) {
  RunMachine machine = Running(ThreeWorkers());
  machine.OnCheckpointCommitted(seconds(2), 4);
  RunEffects effects = machine.OnWorkerLost(seconds(3), "b", "its stream ended");
  ASSERT_EQ(effects.size(), 2u);
  const auto* replan = std::get_if<ReplanEffect>(&effects[0]);
  ASSERT_NE(replan, nullptr);
  EXPECT_EQ(replan->lost, "b");
  EXPECT_EQ(replan->reason, "worker b (stage 1) was lost: its stream ended");
  ASSERT_NE(std::get_if<ProbeLinkEffect>(&effects[1]), nullptr);
  EXPECT_EQ(std::get_if<ProbeLinkEffect>(&effects[1])->from, "a");
  EXPECT_EQ(std::get_if<ProbeLinkEffect>(&effects[1])->to, "c");
  EXPECT_EQ(machine.members(), (std::vector<std::string>{"a", "c"}));
  machine.OnLinkProbed(seconds(3), "a", "c", "");
  effects = machine.OnLinkProbed(seconds(3), "c", "a", "");
  ASSERT_EQ(effects.size(), 1u);
  ASSERT_NE(std::get_if<MakePlanEffect>(&effects[0]), nullptr);
  machine.OnPlanned(seconds(4), 10, {});
  machine.OnStageReady(seconds(4), "a");
  effects = machine.OnStageReady(seconds(4), "c");
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_NE(std::get_if<StartStagesEffect>(&effects[0]), nullptr);
  machine.OnStageFinished(seconds(5), "a", 10);
  machine.OnStageFinished(seconds(5), "c", 10);
  machine.OnCheckpointCommitted(seconds(5), 10);
  EXPECT_EQ(machine.phase(), RunPhase::kFinished);
}

TEST(RunMachineReplanTest, Standby_IsMeasuredFirst) {
  RunMachine machine = Running(ThreeWorkers());
  machine.OnCheckpointCommitted(seconds(2), 4);
  const RunEffects effects = machine.OnWorkerLost(seconds(3), "b", "gone", {"d"});
  ASSERT_EQ(effects.size(), 2u);
  ASSERT_NE(std::get_if<ProbeWorkerEffect>(&effects[1]), nullptr);
  EXPECT_EQ(std::get_if<ProbeWorkerEffect>(&effects[1])->worker, "d");
  EXPECT_EQ(machine.members(), (std::vector<std::string>{"a", "d", "c"}));
}

TEST(RunMachineReplanTest, AnotherLossMeanwhile_IsPlannedForToo) {
  RunMachine machine = Running(ThreeWorkers());
  machine.OnCheckpointCommitted(seconds(2), 4);
  machine.OnWorkerLost(seconds(3), "b", "gone");
  const RunEffects effects = machine.OnWorkerLost(seconds(3), "c", "gone");
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_NE(std::get_if<MakePlanEffect>(&effects[1]), nullptr);  // a alone was measured before
  EXPECT_EQ(machine.members(), std::vector<std::string>{"a"});
}

TEST(RunMachineReplanTest, NeighbourThatFailedFirst_IsKept) {
  RunMachine machine = Running(ThreeWorkers());
  machine.OnCheckpointCommitted(seconds(2), 4);
  EXPECT_TRUE(machine.OnStageFailed(seconds(3), "a", "its link broke", "b").empty());
  machine.OnWorkerLost(seconds(4), "b", "gone");
  EXPECT_TRUE(machine.OnTick(seconds(20)).empty());  // nobody is blamed any more
  EXPECT_EQ(machine.members(), (std::vector<std::string>{"a", "c"}));
}

TEST(RunMachineReplanTest, CheckpointOfAnEarlierLife_IsEnough) {
  RunMachine::Options options = ThreeWorkers();
  options.resumed = true;
  RunMachine machine = Running(options);
  machine.OnWorkerLost(seconds(3), "b", "gone");
  EXPECT_EQ(machine.phase(), RunPhase::kMeasuring);
}

// Ends the run instead, and names the worker.
void ExpectFailed(RunMachine& machine, const std::string& lost, const std::string& why) {
  machine.OnWorkerLost(seconds(3), lost, "gone");
  EXPECT_EQ(machine.phase(), RunPhase::kFailed);
  EXPECT_NE(machine.detail().find("worker " + lost), std::string::npos) << machine.detail();
  EXPECT_NE(machine.detail().find(why), std::string::npos) << machine.detail();
}

TEST(RunMachineReplanTest, NoCheckpointOrSwitchedOffOrStopping_FailsTheRun) {
  RunMachine none = Running(ThreeWorkers());
  ExpectFailed(none, "b", "this life of the run made no checkpoint");
  RunMachine::Options off = ThreeWorkers();
  off.replan.on_lost_worker = false;
  RunMachine switched_off = Running(off);
  switched_off.OnCheckpointCommitted(seconds(2), 4);
  ExpectFailed(switched_off, "b", "the checkpoint of step 4 stays");
  RunMachine stopping = Running(ThreeWorkers());
  stopping.OnCheckpointCommitted(seconds(2), 4);
  stopping.OnStopRequested(seconds(2), "asked");
  ExpectFailed(stopping, "b", "the checkpoint of step 4 stays");
}

TEST(RunMachineReplanTest, NobodyLeft_FailsTheRun) {
  RunMachine machine = Running(ThreeWorkers());
  machine.OnCheckpointCommitted(seconds(2), 4);
  machine.OnWorkerLost(seconds(3), "b", "gone");
  machine.OnWorkerLost(seconds(3), "c", "gone");
  ExpectFailed(machine, "a", "fewer workers are left than clusters");
}

TEST(RunMachineReplanTest, TooManyWithinAnHour_FailsTheRun) {
  RunMachine::Options options = ThreeWorkers();
  options.replan.most_per_hour = 1;
  RunMachine machine = Running(options);
  machine.OnCheckpointCommitted(seconds(2), 4);
  machine.OnWorkerLost(seconds(3), "b", "gone");
  ExpectFailed(machine, "c", "within the hour");
}

TEST(RunMachineReplanTest, NoFeasiblePlan_NamesTheLostWorkerAndWhy) {
  RunMachine machine = Running(ThreeWorkers());
  machine.OnCheckpointCommitted(seconds(2), 4);
  machine.OnWorkerLost(seconds(3), "c", "gone");
  ASSERT_EQ(machine.phase(), RunPhase::kPlanning);
  machine.OnPlanFailed(seconds(4), "not enough memory");
  EXPECT_EQ(machine.phase(), RunPhase::kFailed);
  EXPECT_EQ(machine.detail(), "worker c (stage 2) was lost: gone; no new plan: not enough memory");
}

}  // namespace
}  // namespace stagecoach
