#include "coordinator/domain/run_machine.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename T>
const T* Only(const RunEffects& effects) {
  return effects.size() == 1 ? std::get_if<T>(&effects[0]) : nullptr;
}
bool Ended(const RunEffects& effects) {
  return effects.size() == 2 && std::holds_alternative<ReleaseEffect>(effects[0]) &&
         std::holds_alternative<EndedEffect>(effects[1]);
}

RunMachine::Options TwoWorkers() {
  RunMachine::Options options;
  options.workers_wanted = 2;
  options.max_stages = 8;
  options.total_steps = 10;
  return options;
}

// Brings a machine with workers a, b to `phase`.
RunMachine InPhase(RunPhase phase) {
  RunMachine machine(TwoWorkers());
  if (phase == RunPhase::kWaiting) return machine;
  machine.OnFreeWorkers(seconds(1), {"a", "b"});
  if (phase == RunPhase::kMeasuring) return machine;
  machine.OnWorkerProbed(seconds(1), "a", "");
  machine.OnWorkerProbed(seconds(1), "b", "");
  machine.OnLinkProbed(seconds(1), "a", "b", "");
  machine.OnLinkProbed(seconds(1), "b", "a", "");
  if (phase == RunPhase::kPlanning) return machine;
  machine.OnPlanned(seconds(1), 10, {});
  if (phase == RunPhase::kLoading) return machine;
  machine.OnStageReady(seconds(1), "a");
  machine.OnStageReady(seconds(1), "b");
  if (phase == RunPhase::kRunning) return machine;
  machine.OnStopRequested(seconds(1), "asked");
  return machine;
}

TEST(RunMachineTest, WholeRun_ProbesOneAtATimeAndFinishes) {
  RunMachine machine(TwoWorkers());
  EXPECT_TRUE(machine.OnFreeWorkers(seconds(0), {"a"}).empty());
  EXPECT_EQ(machine.detail(), "waits for workers: 1 of 2 are there");
  auto effects = machine.OnFreeWorkers(seconds(0), {"a", "b", "c"});
  ASSERT_NE(Only<ProbeWorkerEffect>(effects), nullptr);
  EXPECT_EQ(Only<ProbeWorkerEffect>(effects)->worker, "a");
  EXPECT_TRUE(machine.OnWorkerProbed(seconds(0), "b", "").empty());  // not asked yet
  effects = machine.OnWorkerProbed(seconds(0), "a", "");
  EXPECT_EQ(Only<ProbeWorkerEffect>(effects)->worker, "b");
  effects = machine.OnWorkerProbed(seconds(0), "b", "");
  ASSERT_NE(Only<ProbeLinkEffect>(effects), nullptr);
  EXPECT_EQ(Only<ProbeLinkEffect>(effects)->from, "a");
  effects = machine.OnLinkProbed(seconds(0), "a", "b", "");
  EXPECT_EQ(Only<ProbeLinkEffect>(effects)->from, "b");
  effects = machine.OnLinkProbed(seconds(0), "b", "a", "");
  ASSERT_NE(Only<MakePlanEffect>(effects), nullptr);
  EXPECT_EQ(Only<MakePlanEffect>(effects)->workers, (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(Only<AssignStagesEffect>(machine.OnPlanned(seconds(0), 10, {})), nullptr);
  EXPECT_TRUE(machine.OnStageReady(seconds(0), "b").empty());
  EXPECT_NE(Only<StartStagesEffect>(machine.OnStageReady(seconds(0), "a")), nullptr);
  EXPECT_TRUE(machine.OnStageFinished(seconds(1), "a", 10).empty());
  EXPECT_TRUE(machine.OnStageFinished(seconds(1), "b", 10).empty());
  EXPECT_TRUE(machine.OnCheckpointCommitted(seconds(1), 5).empty());
  EXPECT_TRUE(Ended(machine.OnCheckpointCommitted(seconds(2), 10)));
  EXPECT_EQ(machine.phase(), RunPhase::kFinished);
}

TEST(RunMachineTest, StopWhileRunning_EndsAsStopped) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  EXPECT_NE(Only<RequestStopEffect>(machine.OnStopRequested(seconds(1), "asked")), nullptr);
  EXPECT_TRUE(machine.OnStopRequested(seconds(1), "asked again").empty());
  machine.OnStageFinished(seconds(2), "b", 4);
  machine.OnStageFinished(seconds(2), "a", 4);
  EXPECT_TRUE(Ended(machine.OnCheckpointCommitted(seconds(2), 4)));
  EXPECT_EQ(machine.phase(), RunPhase::kStopped);
}

TEST(RunMachineTest, StopBeforeRunning_EndsAtOnce) {
  for (const RunPhase phase : {RunPhase::kWaiting, RunPhase::kMeasuring, RunPhase::kPlanning, RunPhase::kLoading}) {
    RunMachine machine = InPhase(phase);
    ASSERT_EQ(machine.phase(), phase);
    EXPECT_TRUE(Ended(machine.OnStopRequested(seconds(1), "asked")));
    EXPECT_EQ(machine.phase(), RunPhase::kStopped);
  }
}

TEST(RunMachineTest, LostWorker_FailsTheRunInEveryPhaseAndIsNamed) {
  for (const RunPhase phase :
       {RunPhase::kMeasuring, RunPhase::kPlanning, RunPhase::kLoading, RunPhase::kRunning, RunPhase::kStopping}) {
    RunMachine machine = InPhase(phase);
    ASSERT_EQ(machine.phase(), phase);
    EXPECT_TRUE(machine.OnWorkerLost(seconds(2), "stranger", "gone").empty());
    EXPECT_TRUE(Ended(machine.OnWorkerLost(seconds(2), "b", "its stream ended")));
    EXPECT_EQ(machine.phase(), RunPhase::kFailed);
    EXPECT_NE(machine.detail().find("worker b (stage 1) was lost: its stream ended"), std::string::npos);
    EXPECT_TRUE(machine.OnWorkerLost(seconds(2), "a", "gone too").empty());  // ended already
  }
  RunMachine waiting = InPhase(RunPhase::kWaiting);
  EXPECT_TRUE(waiting.OnWorkerLost(seconds(2), "b", "gone").empty());
  EXPECT_EQ(waiting.phase(), RunPhase::kWaiting);
}

TEST(RunMachineTest, NeighbourThatReportsALoss_IsNotBlamed) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  EXPECT_TRUE(machine.OnStageFailed(seconds(2), "a", "stream broke", "b").empty());
  EXPECT_TRUE(machine.OnTick(seconds(3)).empty());
  EXPECT_TRUE(Ended(machine.OnWorkerLost(seconds(3), "b", "its stream ended")));
  EXPECT_EQ(machine.detail().substr(0, 8), "worker b");
}

TEST(RunMachineTest, BrokenLinkBetweenLiveWorkers_FailsAfterTheGrace) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  EXPECT_TRUE(machine.OnStageFailed(seconds(2), "a", "stream broke", "b").empty());
  EXPECT_TRUE(machine.OnStageFailed(seconds(2), "b", "also", "a").empty());
  EXPECT_TRUE(machine.OnTick(milliseconds(3999)).empty());
  EXPECT_TRUE(Ended(machine.OnTick(seconds(4))));
  EXPECT_EQ(machine.detail(), "worker a (stage 0): stream broke (neighbour b)");
}

TEST(RunMachineTest, StageFailure_FailsAtOnce) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  EXPECT_TRUE(Ended(machine.OnStageFailed(seconds(2), "b", "out of memory", "")));
  EXPECT_EQ(machine.detail(), "worker b (stage 1): out of memory");
}

TEST(RunMachineTest, EveryPhaseButWaiting_HasATimeLimit) {
  for (const RunPhase phase :
       {RunPhase::kMeasuring, RunPhase::kPlanning, RunPhase::kLoading, RunPhase::kRunning, RunPhase::kStopping}) {
    RunMachine machine = InPhase(phase);
    EXPECT_TRUE(machine.OnTick(seconds(2)).empty());
    EXPECT_TRUE(Ended(machine.OnTick(seconds(3600)))) << static_cast<int>(phase);
    EXPECT_EQ(machine.phase(), RunPhase::kFailed);
  }
  RunMachine loading = InPhase(RunPhase::kLoading);
  loading.OnStageReady(seconds(2), "a");
  loading.OnTick(seconds(3600));
  EXPECT_EQ(loading.detail(), "not ready in time: b");
}

TEST(RunMachineTest, Progress_PutsOffTheStallLimit) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  machine.OnProgress(seconds(170));
  EXPECT_TRUE(machine.OnTick(seconds(200)).empty());
  EXPECT_TRUE(Ended(machine.OnTick(seconds(400))));
}

TEST(RunMachineTest, TooManySkips_StopWithACheckpointAndAnError) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  EXPECT_NE(Only<RequestStopEffect>(machine.OnTooManySkips(seconds(2), "5 skips")), nullptr);
  machine.OnStageFinished(seconds(2), "a", 7);
  machine.OnStageFinished(seconds(2), "b", 7);
  EXPECT_TRUE(Ended(machine.OnCheckpointCommitted(seconds(2), 7)));
  EXPECT_EQ(machine.phase(), RunPhase::kFailed);
  EXPECT_EQ(machine.detail(), "5 skips");
}

TEST(RunMachineTest, ProbeErrors_NameTheWorkers) {
  RunMachine machine = InPhase(RunPhase::kMeasuring);
  EXPECT_TRUE(Ended(machine.OnWorkerProbed(seconds(1), "a", "no memory")));
  EXPECT_EQ(machine.detail(), "worker a could not measure the model: no memory");
  RunMachine other = InPhase(RunPhase::kMeasuring);
  other.OnWorkerProbed(seconds(1), "a", "");
  other.OnWorkerProbed(seconds(1), "b", "");
  EXPECT_TRUE(Ended(other.OnLinkProbed(seconds(1), "a", "b", "refused")));
  EXPECT_EQ(other.detail(), "worker a cannot reach worker b: refused");
}

TEST(RunMachineTest, StagesThatEndAtDifferentSteps_FailTheRun) {
  RunMachine machine = InPhase(RunPhase::kStopping);
  machine.OnStageFinished(seconds(2), "a", 7);
  EXPECT_TRUE(Ended(machine.OnStageFinished(seconds(2), "b", 8)));
  EXPECT_EQ(machine.phase(), RunPhase::kFailed);
}

// Four workers in two clusters, running.
RunMachine TwoClusters() {
  RunMachine::Options options = TwoWorkers();
  options.workers_wanted = 4;
  options.clusters = 2;
  RunMachine machine(options);
  machine.OnFreeWorkers(seconds(1), {"a", "b", "c", "d"});
  for (const char* worker : {"a", "b", "c", "d"}) machine.OnWorkerProbed(seconds(1), worker, "");
  return machine;
}
RunMachine TwoClustersRunning() {
  RunMachine machine = TwoClusters();
  for (const auto& [from, to] : {std::pair("a", "b"), {"b", "a"}, {"c", "d"}, {"d", "c"}}) {
    machine.OnLinkProbed(seconds(1), from, to, "");
  }
  machine.OnPlanned(seconds(1), 10, {});
  for (const char* worker : {"a", "b", "c", "d"}) machine.OnStageReady(seconds(1), worker);
  return machine;
}

TEST(RunMachineTest, Clusters_MeasureTheirOwnLinksOnly) {
  RunMachine machine = TwoClusters();
  EXPECT_EQ(machine.detail(), "measures link a -> b");
  machine.OnLinkProbed(seconds(1), "a", "b", "");
  machine.OnLinkProbed(seconds(1), "b", "a", "");
  EXPECT_EQ(machine.detail(), "measures link c -> d");
  machine.OnLinkProbed(seconds(1), "c", "d", "");
  EXPECT_NE(Only<MakePlanEffect>(machine.OnLinkProbed(seconds(1), "d", "c", "")), nullptr);
  EXPECT_EQ(machine.cluster_sizes(), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(machine.PlaceOf("d").cluster, 1u);
  EXPECT_EQ(machine.PlaceOf("d").stage, 1u);
}

TEST(RunMachineTest, Clusters_RunAndFinishTogether) {
  RunMachine machine = TwoClustersRunning();
  ASSERT_EQ(machine.phase(), RunPhase::kRunning);
  for (const char* worker : {"a", "b", "c"}) machine.OnStageFinished(seconds(2), worker, 10);
  EXPECT_TRUE(machine.OnCheckpointCommitted(seconds(2), 10).empty());
  EXPECT_TRUE(Ended(machine.OnStageFinished(seconds(2), "d", 10)));
  EXPECT_EQ(machine.phase(), RunPhase::kFinished);
}

TEST(RunMachineTest, ClustersThatStop_EndAfterTheSameStep) {
  RunMachine machine = TwoClustersRunning();
  EXPECT_NE(Only<RequestStopEffect>(machine.OnStopRequested(seconds(1), "asked")), nullptr);
  EXPECT_TRUE(machine.OnStopPoint(seconds(1), "a", 4).empty());
  EXPECT_TRUE(machine.OnStopPoint(seconds(1), "a", 9).empty());  // the first answer counts
  EXPECT_TRUE(machine.OnStopPoint(seconds(1), "d", 9).empty());  // not a first stage
  const auto effects = machine.OnStopPoint(seconds(1), "c", 6);
  ASSERT_NE(Only<EndAfterEffect>(effects), nullptr);
  EXPECT_EQ(Only<EndAfterEffect>(effects)->step, 6u);
}

TEST(RunMachineTest, WorkerOfAnyCluster_EndsTheRun) {
  RunMachine machine = TwoClustersRunning();
  EXPECT_TRUE(Ended(machine.OnWorkerLost(seconds(2), "d", "killed")));
  EXPECT_EQ(machine.detail().substr(0, 41), "worker d (cluster 1, stage 1) was lost: k");
}

// A full disk at step 4 ended the run.
TEST(RunMachineTest, FailedCheckpoint_EndsTheRunOnlyIfItIsTheLast) {
  RunMachine machine = InPhase(RunPhase::kRunning);
  EXPECT_TRUE(machine.OnCheckpointFailed(seconds(2), 4, "disk full").empty());
  EXPECT_EQ(machine.phase(), RunPhase::kRunning);
  machine.OnStageFinished(seconds(3), "a", 10);
  machine.OnStageFinished(seconds(3), "b", 10);
  EXPECT_EQ(machine.phase(), RunPhase::kRunning);
  RunMachine other = machine;
  EXPECT_TRUE(Ended(machine.OnCheckpointCommitted(seconds(4), 10)));
  EXPECT_EQ(machine.phase(), RunPhase::kFinished);
  EXPECT_TRUE(Ended(other.OnCheckpointFailed(seconds(4), 10, "unit 2: disk full")));
  EXPECT_EQ(other.phase(), RunPhase::kFailed);
  EXPECT_EQ(other.detail().substr(0, 60), "the last checkpoint could not be written: unit 2: disk full;")
      << other.detail();
}

TEST(RunMachineTest, LastCheckpointThatFailsBeforeTheStagesEnd_EndsTheStoppedRun) {
  RunMachine machine = InPhase(RunPhase::kStopping);
  machine.OnCheckpointCommitted(seconds(2), 3);
  EXPECT_TRUE(machine.OnStageFinished(seconds(2), "a", 5).empty());
  EXPECT_TRUE(machine.OnCheckpointFailed(seconds(2), 5, "disk full").empty());
  EXPECT_TRUE(Ended(machine.OnStageFinished(seconds(2), "b", 5)));
  EXPECT_EQ(machine.phase(), RunPhase::kFailed);
  EXPECT_NE(machine.detail().find("the one of step 3 stays"), std::string::npos) << machine.detail();
}

// With clusters that the plan chooses; every worker is measured.
RunMachine Choosing(size_t workers) {
  RunMachine::Options options = TwoWorkers();
  options.workers_wanted = static_cast<uint32_t>(workers);
  options.clusters = 64;
  options.choose_clusters = true;
  RunMachine machine(options);
  std::vector<std::string> names;
  for (size_t i = 0; i < workers; ++i) names.push_back(std::string(1, static_cast<char>('a' + i)));
  machine.OnFreeWorkers(seconds(1), names);
  for (size_t i = 0; i + 1 < workers; ++i) machine.OnWorkerProbed(seconds(1), names[i], "");
  return machine;
}

TEST(RunMachineTest, ChosenClusters_EveryPairIsMeasuredOnceInRoundsWithoutACommonWorker) {
  for (const size_t workers : {2u, 5u, 8u}) {
    RunMachine machine = Choosing(workers);
    std::set<std::pair<std::string, std::string>> seen;
    RunEffects round = machine.OnWorkerProbed(seconds(1), std::string(1, static_cast<char>('a' + workers - 1)), "");
    while (machine.phase() == RunPhase::kMeasuring) {
      EXPECT_EQ(round.size(), workers / 2);
      std::set<std::string> busy;
      RunEffects next;
      for (const RunEffect& effect : round) {
        const auto* probe = std::get_if<ProbeLinkEffect>(&effect);
        ASSERT_NE(probe, nullptr);
        EXPECT_TRUE(busy.insert(probe->from).second && busy.insert(probe->to).second);
        EXPECT_TRUE(seen.emplace(probe->from, probe->to).second);
        EXPECT_TRUE(next.empty());
        next = machine.OnLinkProbed(seconds(1), probe->from, probe->to, "");
      }
      round = next;
    }
    EXPECT_EQ(seen.size(), workers * (workers - 1));
    EXPECT_NE(Only<MakePlanEffect>(round), nullptr);
  }
}

TEST(RunMachineTest, ChosenClusters_PairsThatFailOrDoNotAnswerAreLeftToThePlan) {
  RunMachine machine = Choosing(2);
  machine.OnWorkerProbed(seconds(1), "b", "");
  const RunEffects back = machine.OnLinkProbed(seconds(1), "a", "b", "refused");
  ASSERT_NE(Only<ProbeLinkEffect>(back), nullptr);
  EXPECT_EQ(Only<ProbeLinkEffect>(back)->from, "b");
  EXPECT_TRUE(machine.OnTick(seconds(2)).empty());
  EXPECT_NE(Only<MakePlanEffect>(machine.OnTick(seconds(100))), nullptr);
  EXPECT_TRUE(machine.OnLinkProbed(seconds(101), "b", "a", "").empty());  // too late
}

TEST(RunMachineTest, ChosenClusters_OrderTheMembersAndFreeTheRest) {
  RunMachine machine = Choosing(5);
  machine.OnWorkerProbed(seconds(1), "e", "");
  for (int round = 1; machine.phase() == RunPhase::kMeasuring && round < 100; ++round)
    machine.OnTick(seconds(100 * round));
  EXPECT_NE(Only<AssignStagesEffect>(machine.OnPlanned(seconds(1), 10, {{"d", "a"}, {"c", "b"}})), nullptr);
  EXPECT_EQ(machine.members(), (std::vector<std::string>{"d", "a", "c", "b"}));
  EXPECT_EQ(machine.cluster_sizes(), (std::vector<size_t>{2, 2}));
  EXPECT_FALSE(machine.IsMember("e"));
  EXPECT_TRUE(machine.OnWorkerLost(seconds(1), "e", "gone").empty());
  EXPECT_EQ(machine.PlaceOf("b").cluster, 1u);
}

TEST(RunMachineTest, ChosenClusters_AtMost64WorkersAreMeasured) {
  RunMachine::Options options = TwoWorkers();
  options.workers_wanted = 0;
  options.clusters = 64;
  options.choose_clusters = true;
  RunMachine machine(options);
  std::vector<std::string> names;
  for (int i = 100; i < 170; ++i) names.push_back(std::to_string(i));
  machine.OnFreeWorkers(seconds(1), names);
  EXPECT_EQ(machine.members().size(), RunMachine::kMostMeasuredTogether);
}

TEST(RunMachineTest, SizesOfAnEarlierRun_AreKept) {
  RunMachine::Options options = TwoWorkers();
  options.workers_wanted = 5;
  options.clusters = 2;
  options.cluster_sizes = {1, 3};
  RunMachine machine(options);
  machine.OnFreeWorkers(seconds(1), {"a", "b", "c", "d", "e"});
  EXPECT_EQ(machine.members().size(), 4u);
  EXPECT_EQ(machine.cluster_sizes(), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(machine.PlaceOf("b").cluster, 1u);
}

TEST(RunMachineTest, MoreWorkersThanStages_AreLeftOut) {
  RunMachine::Options options = TwoWorkers();
  options.max_stages = 1;
  RunMachine machine(options);
  machine.OnFreeWorkers(seconds(1), {"a", "b"});
  EXPECT_EQ(machine.members(), std::vector<std::string>{"a"});
  EXPECT_NE(Only<MakePlanEffect>(machine.OnWorkerProbed(seconds(1), "a", "")), nullptr);  // no link to measure
}

}  // namespace
}  // namespace stagecoach
