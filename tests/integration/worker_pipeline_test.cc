// Whole pipelines of worker nodes in this process, with fake executors: the numbers must be those of the single-process
// reference, whatever the links, windows and timings.
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "model/record_reader.h"
#include "tests/support/fake_reference.h"
#include "tests/support/in_process_link.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/scripted_fleet.h"
#include "worker/link/grpc_link.h"

namespace stagecoach {
namespace {

using testing::FakeRunRecord;
using testing::LifeResult;
using testing::LinkEnd;
using testing::LinkMaker;
using testing::ManifestOf;
using testing::ScriptedFleet;

LinkMaker GrpcLinks() {
  return [](EventLoop* loop, std::shared_ptr<HostBufferPool> pool) {
    GrpcLinkOptions options;
    options.loop = loop;
    options.pool = std::move(pool);
    auto factory = GrpcLinkFactory::Create(options);
    EXPECT_TRUE(factory.ok()) << factory.status();
    LinkEnd end;
    end.address = absl::StrCat("127.0.0.1:", (*factory)->listen_port());
    end.factory = *std::move(factory);
    return end;
  };
}

LinkMaker InProcessLinks(InProcessNetwork* network) {
  return [network](EventLoop* loop, std::shared_ptr<HostBufferPool>) {
    return LinkEnd{network->MakeFactory(loop), "in-process:1"};
  };
}

struct Shape {
  uint32_t stages, microbatches, j;
  std::vector<uint32_t> windows;
  bool grpc;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << "P=" << shape.stages << " M=" << shape.microbatches << " J=" << shape.j
       << (shape.grpc ? " gRPC" : " in process");
}

void ExpectReference(const RunRecord& record, uint64_t steps, const LifeResult& life) {
  const auto config = ReadRunConfig(record);
  ASSERT_TRUE(config.ok()) << config.status();
  const FakeReferenceResult reference = RunFakeReference(*config, steps);
  EXPECT_TRUE(life.failures.empty()) << life.failures[0].ShortDebugString();
  ASSERT_EQ(life.losses.size(), steps);
  for (uint64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(life.losses.at(step), reference.losses[step]) << step;
    EXPECT_EQ(life.clips.at(step), reference.clips[step]) << step;
    EXPECT_EQ(life.square_sums.at(step), reference.square_sums[step]) << step;
  }
  EXPECT_EQ(life.evaluations, reference.evaluations);
  CheckpointManifest manifest = ManifestOf(record, steps, life.parts);
  ASSERT_EQ(static_cast<size_t>(manifest.files_size()), reference.weights_sha256.size());
  EXPECT_EQ(WeightHash(manifest), reference.weight_hash);
}

class WorkerPipelineTest : public ::testing::TestWithParam<Shape> {};

TEST_P(WorkerPipelineTest, Run_EqualsTheSingleProcessReference) {
  const Shape& shape = GetParam();
  testing::ScratchFolder folder;
  InProcessNetwork network;
  ScriptedFleet fleet(shape.stages, FakeCosts{}, shape.grpc ? GrpcLinks() : InProcessLinks(&network));
  const RunRecord record = FakeRunRecord(shape.stages, shape.microbatches, shape.j, 10, folder.path());
  const LifeResult life = fleet.Run({record, shape.windows});
  EXPECT_EQ(life.steps, 10u);
  ExpectReference(record, 10, life);
}

TEST_P(WorkerPipelineTest, StopAndResume_EqualsTheRunThatWasNotStopped) {
  const Shape& shape = GetParam();
  testing::ScratchFolder folder;
  InProcessNetwork network;
  ScriptedFleet fleet(shape.stages, FakeCosts{}, shape.grpc ? GrpcLinks() : InProcessLinks(&network));
  const RunRecord record = FakeRunRecord(shape.stages, shape.microbatches, shape.j, 9, folder.path());
  const LifeResult first = fleet.Run({record, shape.windows, 0, 4});
  EXPECT_EQ(first.steps, 4u);
  const CheckpointManifest manifest = ManifestOf(record, 4, first.parts);
  const absl::Status committed = CommitCheckpoint(folder.path(), manifest);
  ASSERT_TRUE(committed.ok()) << committed;
  LifeResult second = fleet.Run({record, shape.windows, 4, 0, CheckpointDir(folder.path(), 4)});
  second.losses.insert(first.losses.begin(), first.losses.end());
  second.clips.insert(first.clips.begin(), first.clips.end());
  second.square_sums.insert(first.square_sums.begin(), first.square_sums.end());
  second.evaluations.insert(second.evaluations.begin(), first.evaluations.begin(), first.evaluations.end());
  ExpectReference(record, 9, second);
}

INSTANTIATE_TEST_SUITE_P(Shapes, WorkerPipelineTest,
                         ::testing::Values(Shape{1, 4, 0, {2}, false}, Shape{2, 4, 0, {3, 2}, false},
                                           Shape{3, 4, 4, {4, 3, 2}, false}, Shape{4, 6, 3, {7, 5, 3, 2}, false},
                                           Shape{4, 2, 7, {6, 5, 3, 2}, false}, Shape{2, 3, 2, {3, 2}, true},
                                           Shape{4, 4, 4, {6, 5, 3, 2}, true}, Shape{4, 2, 6, {6, 5, 3, 2}, true}));

TEST(WorkerPipelineEventsTest, Checkpoints_AreWrittenWhileTheRunGoesOn) {
  testing::ScratchFolder folder;
  InProcessNetwork network;
  ScriptedFleet fleet(3, FakeCosts{0.0002, 0.0002, 0}, InProcessLinks(&network));
  RunRecord record = FakeRunRecord(3, 4, 4, 12, folder.path());
  record.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  const LifeResult life = fleet.Run({record, {5, 3, 2}});
  ExpectReference(record, 12, life);
  const auto config = ReadRunConfig(record);
  for (uint64_t step = 2; step <= 12; step += 2) {
    const FakeReferenceResult reference = RunFakeReference(*config, step);
    EXPECT_EQ(WeightHash(ManifestOf(record, step, life.parts)), reference.weight_hash) << step;
  }
}

TEST(WorkerPipelineEventsTest, CheckpointThatCannotBeWritten_IsReportedAndTheRunGoesOn) {
  testing::ScratchFolder folder;
  InProcessNetwork network;
  ScriptedFleet fleet(2, FakeCosts{}, InProcessLinks(&network));
  const std::string file = folder.path() + "/a-file";
  ASSERT_EQ(system(("touch " + file).c_str()), 0);
  const RunRecord record = FakeRunRecord(2, 4, 4, 3, file);
  const LifeResult life = fleet.Run({record, {3, 2}});
  EXPECT_TRUE(life.failures.empty());
  EXPECT_EQ(life.steps, 3u);
  ASSERT_FALSE(life.parts.empty());
  for (const CheckpointPart& part : life.parts) EXPECT_NE(part.error(), "");
}

TEST(WorkerPipelineEventsTest, StopRun_EndsAtAStepBoundaryWithACheckpoint) {
  testing::ScratchFolder folder;
  ScriptedFleet fleet(3, FakeCosts{0.0005, 0.0005, 0}, GrpcLinks());
  const RunRecord record = FakeRunRecord(3, 4, 4, 100000, folder.path());
  fleet.Assign({record, {5, 3, 2}});
  fleet.StartStages();
  size_t from = 0;
  WorkerMessage message;
  ASSERT_TRUE(
      fleet.control(2).WaitFor([](const WorkerMessage& m) { return m.step_report().step() >= 3; }, &from, &message));
  CoordinatorMessage stop;
  stop.mutable_stop_run()->set_epoch(fleet.epoch());
  fleet.control(0).Send(stop);
  from = 0;
  ASSERT_TRUE(fleet.control(0).WaitFor([](const WorkerMessage& m) { return m.has_stop_point(); }, &from, &message));
  const uint64_t end = message.stop_point().step();
  const LifeResult life = fleet.Finish();
  EXPECT_EQ(life.steps, end);
  EXPECT_LT(end, 100000u);
  const auto config = ReadRunConfig(record);
  const FakeReferenceResult reference = RunFakeReference(*config, end);
  EXPECT_EQ(WeightHash(ManifestOf(record, end, life.parts)), reference.weight_hash);
}

TEST(WorkerPipelineEventsTest, WorkerThatEnds_MakesItsNeighbourReportIt) {
  testing::ScratchFolder folder;
  ScriptedFleet fleet(3, FakeCosts{0.001, 0.001, 0}, GrpcLinks());
  const RunRecord record = FakeRunRecord(3, 4, 4, 100000, folder.path());
  fleet.Assign({record, {5, 3, 2}});
  fleet.StartStages();
  size_t from = 0;
  WorkerMessage message;
  ASSERT_TRUE(
      fleet.control(2).WaitFor([](const WorkerMessage& m) { return m.step_report().step() >= 2; }, &from, &message));
  fleet.StopWorker(2);
  from = 0;
  ASSERT_TRUE(fleet.control(1).WaitFor([](const WorkerMessage& m) { return m.has_stage_failed(); }, &from, &message));
  EXPECT_EQ(message.stage_failed().peer(), "worker-2");
  EXPECT_NE(message.stage_failed().error().find("worker-2"), std::string::npos) << message.ShortDebugString();
}

TEST(WorkerPipelineEventsTest, CoordinatorLost_ReleasesTheStageAndRegistersAgain) {
  testing::ScratchFolder folder;
  InProcessNetwork network;
  ScriptedFleet fleet(1, FakeCosts{0.001, 0.001, 0}, InProcessLinks(&network));
  const RunRecord record = FakeRunRecord(1, 4, 0, 100000, folder.path());
  fleet.Assign({record, {2}});
  fleet.StartStages();
  size_t from = 0;
  WorkerMessage first, second;
  const auto is_register = [](const WorkerMessage& m) { return m.has_register_(); };
  ASSERT_TRUE(fleet.control(0).WaitFor(is_register, &from, &first));
  ASSERT_TRUE(fleet.control(0).WaitFor([](const WorkerMessage& m) { return m.has_step_report(); }, &from, &second));
  fleet.control(0).Break(absl::UnavailableError("coordinator killed"));
  ASSERT_TRUE(fleet.control(0).WaitFor(is_register, &from, &second));
  EXPECT_NE(first.register_().incarnation(), second.register_().incarnation());
  CoordinatorMessage registered;
  registered.mutable_registered()->set_heartbeat_interval_ms(50);
  fleet.control(0).Send(registered);
  ASSERT_TRUE(fleet.control(0).WaitFor([](const WorkerMessage& m) { return m.has_heartbeat(); }, &from, &second));
  EXPECT_EQ(second.heartbeat().epoch(), 0u);
}

TEST(WorkerPipelineEventsTest, StalenessHistogram_IsTheRules) {
  testing::ScratchFolder folder;
  InProcessNetwork network;
  ScriptedFleet fleet(2, FakeCosts{}, InProcessLinks(&network));
  const RunRecord record = FakeRunRecord(2, 4, 6, 20, folder.path());  // tau = 2, J' = 2
  const LifeResult life = fleet.Run({record, {7, 2}});
  ASSERT_EQ(life.counters.size(), 2u);
  for (const WorkerCounters& counters : life.counters) {
    // Step 0: 4 at lag 0. Step 1: version of n = 4..7 is max(0, floor((n-6)/4)) = 0: lag 1. Then 2 at lag 2, 2 at
    // lag 1.
    EXPECT_EQ(counters.staleness().at(0), 4u);
    EXPECT_EQ(counters.staleness().at(1), 4u + 18 * 2);
    EXPECT_EQ(counters.staleness().at(2), 18u * 2);
  }
}

}  // namespace
}  // namespace stagecoach
