// The real coordinator service on a free port, with scripted workers that speak the protocol.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "coordinator/service/coordinator_server.h"
#include "gtest/gtest.h"
#include "tests/integration/coordinator_fake_worker.h"

namespace stagecoach {
namespace {

using testing::FakeWorker;
using testing::ProbeMeter;

class CoordinatorServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/coordinator-", getpid(), "-",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream data(folder_ + "/tokens.bin", std::ios::binary);
    for (int i = 0; i < 4000; ++i) data.put(static_cast<char>(i % 2 == 0 ? (i / 2) % 251 : 0));  // uint16 below 251
    data.close();
    StartCoordinator(std::chrono::seconds(8));
  }
  void StartCoordinator(Duration dead_after) {
    server_.reset();
    CoordinatorOptions options;
    options.listen = "127.0.0.1:0";
    options.state_dir = folder_ + "/state";
    options.membership.dead_after = dead_after;
    options.membership.suspect_after = dead_after / 2;
    auto server = CoordinatorServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = Coordinator::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  SubmitRequest Request(uint64_t steps = 6) const {
    SubmitRequest request;
    request.set_workers(2);
    RunSpec* spec = request.mutable_spec();
    spec->set_name("tiny");
    spec->set_run_dir(folder_ + "/run");
    spec->mutable_model()->set_width(64);
    spec->mutable_model()->set_layers(4);
    spec->mutable_model()->set_heads(4);
    spec->mutable_data()->set_path(folder_ + "/tokens.bin");
    spec->mutable_schedule()->set_steps(steps);
    spec->mutable_schedule()->set_sequences(1);
    spec->mutable_schedule()->set_sequence_tokens(16);
    return request;
  }
  absl::Status Submit(const SubmitRequest& request) {
    grpc::ClientContext context;
    SubmitReply reply;
    return FromGrpcStatus(stub_->Submit(&context, request, &reply));
  }
  std::unique_ptr<FakeWorker> Worker(const std::string& name, uint64_t incarnation, FakeWorker::Behaviour behaviour) {
    return std::make_unique<FakeWorker>(server_->port(), name, incarnation, behaviour);
  }
  std::unique_ptr<FakeWorker> Worker(const std::string& name, uint64_t incarnation) {
    return Worker(name, incarnation, FakeWorker::Behaviour());
  }

  // Reads the watch until the stream ends; the last status with the rows of all.
  RunStatus WatchToTheEnd() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(40));
    WatchRequest request;
    request.set_run("tiny");
    auto stream = stub_->Watch(&context, request);
    RunStatus last, status;
    while (stream->Read(&status)) {
      auto steps = last.steps();
      last = status;
      for (const StepRow& row : status.steps()) *steps.Add() = row;
      *last.mutable_steps() = steps;
      states_.insert(status.state());
    }
    watch_end_ = FromGrpcStatus(stream->Finish());
    return last;
  }

  FleetStatusReply FleetStatus() {
    grpc::ClientContext context;
    FleetStatusReply reply;
    EXPECT_TRUE(stub_->FleetStatus(&context, FleetStatusRequest(), &reply).ok());
    return reply;
  }
  // Empty: not in the fleet.
  bool WaitForWorkerState(const std::string& name, const std::string& state) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    do {
      std::string found;
      const FleetStatusReply fleet = FleetStatus();
      for (const WorkerRow& row : fleet.workers()) {
        if (row.name() == name) found = row.state();
      }
      if (found == state) return true;
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
  }

  std::string folder_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<Coordinator::Stub> stub_;
  std::set<int> states_;
  absl::Status watch_end_;
};

TEST_F(CoordinatorServiceTest, WholeRun_FinishesAndIsRecorded) {
  ProbeMeter meter;
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  FakeWorker::Behaviour behaviour;
  behaviour.meter = &meter;
  const auto a = Worker("a", 1, behaviour), b = Worker("b", 2, behaviour);
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(watch_end_, absl::OkStatus());
  ASSERT_EQ(status.state(), RUN_STATE_FINISHED) << status.detail();
  EXPECT_EQ(status.steps_done(), 6u);
  ASSERT_EQ(status.steps_size(), 6);
  EXPECT_EQ(status.steps(5).step(), 5u);
  EXPECT_DOUBLE_EQ(status.steps(5).loss(), 4.95);
  EXPECT_EQ(status.steps(0).norm(), 2);
  EXPECT_EQ(status.checkpoint_step(), 6u);
  EXPECT_EQ(status.weight_hash().size(), 64u);
  EXPECT_EQ(status.coordinator_tensor_bytes(), 0u);
  EXPECT_GT(status.coordinator_received_bytes(), 100u);
  EXPECT_EQ(meter.most, 1);   // one measurement at a time
  EXPECT_EQ(meter.total, 4);  // two workers, one link in both directions
  EXPECT_TRUE(a->WaitForMessage(CoordinatorMessage::kReleaseStage));
  const auto record = ReadRunRecord(folder_ + "/run");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->cuts_size(), 1);
  EXPECT_EQ(record->basis_sha256(), "basis");
  EXPECT_EQ(record->data_tokens(), 2000u);
  const auto manifest = NewestVerified(folder_ + "/run", nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step(), 6u);
  EXPECT_EQ(manifest->losses_size(), 6);
}

TEST_F(CoordinatorServiceTest, TwoClusters_AreOneRun) {
  SubmitRequest request = Request();
  request.set_workers(4);
  request.mutable_spec()->mutable_averaging()->set_clusters(2);
  request.mutable_spec()->mutable_averaging()->set_every_steps(4);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  const auto a = Worker("a", 1), b = Worker("b", 2), c = Worker("c", 3), d = Worker("d", 4);
  const RunStatus status = WatchToTheEnd();
  ASSERT_EQ(status.state(), RUN_STATE_FINISHED) << status.detail();
  EXPECT_EQ(status.steps_done(), 6u);
  EXPECT_EQ(status.steps_size(), 6);
  EXPECT_DOUBLE_EQ(status.steps(5).loss(), 4.95);
  ASSERT_EQ(status.clusters_size(), 2);
  EXPECT_EQ(status.clusters(1).plan().stages(0).worker(), "c");
  EXPECT_EQ(status.clusters(1).steps_done(), 6u);
  EXPECT_EQ(status.clusters(0).weight_hash(), status.clusters(1).weight_hash());
  ASSERT_EQ(status.workers_size(), 4);
  EXPECT_EQ(status.workers(3).cluster(), 1u);
  EXPECT_EQ(status.workers(3).stage(), 1u);
  const auto manifest = NewestVerified(folder_ + "/run", nullptr);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->files_size(), 12);
  EXPECT_EQ(manifest->files(6).name(), "cluster-1/layer-0000.safetensors");
  EXPECT_EQ(manifest->files(6).cluster(), 1u);
  EXPECT_EQ(manifest->clusters_size(), 2);
  EXPECT_EQ(manifest->clusters(1).losses_size(), 6);
}

// One link in each direction at a time for each worker, and several pairs together.
TEST_F(CoordinatorServiceTest, ChosenClusters_EveryPairIsMeasuredAndThePlanSaysWhoIsWhere) {
  SubmitRequest request = Request();
  request.set_workers(4);
  request.mutable_spec()->mutable_averaging()->set_choose_clusters(true);
  request.mutable_spec()->mutable_averaging()->set_every_steps(4);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  ProbeMeter meter;
  FakeWorker::Behaviour behaviour;
  behaviour.meter = &meter;
  const auto a = Worker("a", 1, behaviour), b = Worker("b", 2, behaviour), c = Worker("c", 3, behaviour),
             d = Worker("d", 4, behaviour);
  const RunStatus status = WatchToTheEnd();
  ASSERT_EQ(status.state(), RUN_STATE_FINISHED) << status.detail();
  EXPECT_EQ(meter.total, 4 + 12);
  EXPECT_LE(meter.most, 2);
  std::set<std::string> placed;
  for (const WorkerRow& row : status.workers()) {
    EXPECT_TRUE(placed.insert(row.name()).second);
    const Plan& plan = status.clusters().empty() ? status.plan() : status.clusters(row.cluster()).plan();
    EXPECT_EQ(plan.stages(static_cast<int>(row.stage())).worker(), row.name());
    EXPECT_EQ(plan.stages(static_cast<int>(row.stage())).address(), row.address());
  }
  const auto record = ReadRunRecord(folder_ + "/run");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_FALSE(record->spec().averaging().choose_clusters());
  request.mutable_spec()->set_run_dir(folder_ + "/many");
  request.set_workers(65);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  const RunStatus many = WatchToTheEnd();
  EXPECT_EQ(many.state(), RUN_STATE_FAILED);
  EXPECT_TRUE(many.refused());
}

TEST_F(CoordinatorServiceTest, ClustersThatAreStopped_EndAfterTheSameStep) {
  SubmitRequest request = Request();
  request.set_workers(2);
  request.mutable_spec()->mutable_averaging()->set_clusters(2);
  FakeWorker::Behaviour waits;
  waits.finish_alone = false;
  const auto a = Worker("a", 1, waits), b = Worker("b", 2, waits);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kStartStage));
  grpc::ClientContext context;
  StopRequest stop;
  StopReply reply;
  stop.set_run("tiny");
  ASSERT_TRUE(stub_->Stop(&context, stop, &reply).ok());
  const RunStatus status = WatchToTheEnd();
  ASSERT_EQ(status.state(), RUN_STATE_STOPPED) << status.detail();
  EXPECT_EQ(status.steps_done(), 3u);  // the second cluster holds a step later than the first one
}

TEST_F(CoordinatorServiceTest, ClusterThatTrainsOnOtherData_FailsTheRun) {
  SubmitRequest request = Request();
  request.mutable_spec()->mutable_averaging()->set_clusters(2);
  FakeWorker::Behaviour wrong;
  wrong.trains_on_other_data = true;
  const auto a = Worker("a", 1), b = Worker("b", 2, wrong);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_NE(status.detail().find("worker b trained on other data"), std::string::npos) << status.detail();
}

TEST_F(CoordinatorServiceTest, Resume_GoesOnFromTheCheckpointWithANewEpoch) {
  SubmitRequest request = Request();
  request.set_stop_after(4);
  const auto a = Worker("a", 1), b = Worker("b", 2);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  ASSERT_EQ(WatchToTheEnd().state(), RUN_STATE_STOPPED);
  const uint64_t epoch = a->epoch();
  request.set_stop_after(0);
  request.set_resume(true);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  ASSERT_EQ(status.state(), RUN_STATE_FINISHED) << status.detail();
  EXPECT_EQ(status.first_step(), 4u);
  EXPECT_EQ(status.steps_size(), 2);
  EXPECT_GT(a->epoch(), epoch);
  EXPECT_EQ(ReadManifest(folder_ + "/run", 6)->losses_size(), 6);
}

// The seed was taken from the record in silence.
TEST_F(CoordinatorServiceTest, ResumeThatContradictsTheRecord_Fails) {
  SubmitRequest request = Request();
  request.set_stop_after(4);
  const auto a = Worker("a", 1), b = Worker("b", 2);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  ASSERT_EQ(WatchToTheEnd().state(), RUN_STATE_STOPPED);
  request.set_stop_after(0);
  request.set_resume(true);
  request.mutable_spec()->set_seed(2);
  ASSERT_EQ(Submit(request), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_EQ(status.detail().substr(0, 56), "seed: 2 contradicts the record of the earlier run, which")
      << status.detail();
}

TEST_F(CoordinatorServiceTest, DiskFullInTheMiddle_CostsThatCheckpointOnly) {
  FakeWorker::Behaviour full;
  full.disk_full_at = 3;
  const auto a = Worker("a", 1), b = Worker("b", 2, full);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  ASSERT_EQ(status.state(), RUN_STATE_FINISHED) << status.detail();
  EXPECT_EQ(status.checkpoint_step(), 6u);
  EXPECT_EQ(status.failed_checkpoints(), 1u);
  EXPECT_NE(status.checkpoint_error().find("b: checkpoint of step 3, unit"), std::string::npos)
      << status.checkpoint_error();
  EXPECT_NE(status.checkpoint_error().find("no space left"), std::string::npos) << status.checkpoint_error();
}

TEST_F(CoordinatorServiceTest, DiskFullAtTheEnd_FailsTheRun) {
  FakeWorker::Behaviour full;
  full.disk_full_at = 6;
  const auto a = Worker("a", 1), b = Worker("b", 2, full);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_NE(status.detail().find("the last checkpoint could not be written: b: checkpoint of step 6"),
            std::string::npos)
      << status.detail();
}

TEST_F(CoordinatorServiceTest, Stop_EndsWithACheckpoint) {
  FakeWorker::Behaviour waits;
  waits.finish_alone = false;
  const auto a = Worker("a", 1, waits), b = Worker("b", 2, waits);
  ASSERT_EQ(Submit(Request(100)), absl::OkStatus());
  ASSERT_TRUE(b->WaitForMessage(CoordinatorMessage::kStartStage));
  grpc::ClientContext context;
  StopRequest stop;
  stop.set_run("tiny");
  StopReply reply;
  ASSERT_TRUE(stub_->Stop(&context, stop, &reply).ok());
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kStopRun));  // stage 0 tells the others
  b->RunSteps(2);
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_STOPPED) << status.detail();
  EXPECT_EQ(status.checkpoint_step(), 2u);
}

TEST_F(CoordinatorServiceTest, KilledWorker_FailsTheRunAtOnceAndIsNamed) {
  FakeWorker::Behaviour waits;
  waits.finish_alone = false;
  const auto a = Worker("a", 1, waits);
  const auto b = Worker("b", 2, waits);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  ASSERT_TRUE(b->WaitForMessage(CoordinatorMessage::kStartStage));
  const auto before = std::chrono::steady_clock::now();
  b->Kill();
  const RunStatus status = WatchToTheEnd();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_NE(status.detail().find("worker b (stage 1) was lost"), std::string::npos) << status.detail();
  EXPECT_TRUE(a->WaitForMessage(CoordinatorMessage::kReleaseStage));
}

TEST_F(CoordinatorServiceTest, SilentWorker_FailsTheRunAndIsNamed) {
  StartCoordinator(std::chrono::milliseconds(1300));
  FakeWorker::Behaviour waits;
  waits.finish_alone = false;
  const auto a = Worker("a", 1, waits), b = Worker("b", 2, waits);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kStartStage));
  a->FallSilent();
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_NE(status.detail().find("worker a (stage 0) was lost: it has been silent"), std::string::npos)
      << status.detail();
  EXPECT_EQ(a->WaitForEnd().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(CoordinatorServiceTest, NewIncarnation_ReplacesASuspectOneForGood) {
  FakeWorker::Behaviour silent;
  silent.heartbeats = false;
  StartCoordinator(std::chrono::seconds(4));
  const auto old = Worker("a", 1, silent);
  ASSERT_TRUE(old->WaitForMessage(CoordinatorMessage::kRegistered));
  ASSERT_TRUE(WaitForWorkerState("a", "suspect"));
  const auto young = Worker("a", 2);
  ASSERT_TRUE(young->WaitForMessage(CoordinatorMessage::kRegistered));
  EXPECT_EQ(old->WaitForEnd().code(), absl::StatusCode::kAborted);
  const auto again = Worker("a", 1);
  EXPECT_EQ(again->WaitForEnd().code(), absl::StatusCode::kAborted);
}

// The second one replaced the first one and ended its run.
TEST_F(CoordinatorServiceTest, NameOfALiveWorker_IsRefusedAndFreeOnceThatIsGone) {
  const auto a = Worker("a", 1), b = Worker("b", 2);
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kRegistered));
  const auto second = Worker("a", 3);
  EXPECT_EQ(second->WaitForEnd().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second->WaitForEnd().message().find("another --name"), absl::string_view::npos);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  EXPECT_EQ(WatchToTheEnd().state(), RUN_STATE_FINISHED);
  a->Kill();
  ASSERT_FALSE(a->WaitForEnd().ok());
  ASSERT_TRUE(WaitForWorkerState("a", ""));
  const auto later = Worker("a", 4);
  EXPECT_TRUE(later->WaitForMessage(CoordinatorMessage::kRegistered));
}

TEST_F(CoordinatorServiceTest, FolderOfALiveRun_IsRefusedBeforeItsFirstCheckpoint) {
  ASSERT_EQ(Submit(Request()), absl::OkStatus());  // waits for workers
  SubmitRequest request = Request();
  request.mutable_spec()->set_name("other");
  request.mutable_spec()->set_run_dir(folder_ + "/x/../run/");
  const absl::Status status = Submit(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("is in use by run tiny"), absl::string_view::npos) << status;
  request.mutable_spec()->set_run_dir(folder_ + "/other");
  EXPECT_EQ(Submit(request), absl::OkStatus());
}

TEST_F(CoordinatorServiceTest, MalformedMessages_CloseTheSession) {
  const auto unnamed = Worker("Not A Name", 1);
  EXPECT_EQ(unnamed->WaitForEnd().code(), absl::StatusCode::kInvalidArgument);
  const auto a = Worker("a", 1);
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kRegistered));
  WorkerMessage message;
  message.mutable_probe_result()->mutable_head()->set_forward_seconds(-1);
  a->Write(message);
  EXPECT_EQ(a->WaitForEnd().code(), absl::StatusCode::kInvalidArgument);

  grpc::ClientContext context;
  auto stream = stub_->Session(&context);
  message.mutable_heartbeat()->set_epoch(1);  // before Register
  stream->Write(message);
  CoordinatorMessage reply;
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorServiceTest, StaleEpoch_IsIgnored) {
  FakeWorker::Behaviour waits;
  waits.finish_alone = false;
  const auto a = Worker("a", 1, waits), b = Worker("b", 2, waits);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  ASSERT_TRUE(b->WaitForMessage(CoordinatorMessage::kStartStage));
  WorkerMessage message;
  message.mutable_stage_failed()->set_epoch(b->epoch() + 1);
  message.mutable_stage_failed()->set_error("from another plan");
  b->Write(message);
  a->RunSteps(6);
  b->RunSteps(6);
  EXPECT_EQ(WatchToTheEnd().state(), RUN_STATE_FINISHED);
}

TEST_F(CoordinatorServiceTest, UnusableRequests_AreExplained) {
  SubmitRequest request = Request();
  request.mutable_spec()->mutable_model()->set_heads(5);
  EXPECT_EQ(Submit(request).message(), "model.heads: 5 does not divide model.width 64");
  request = Request();
  request.mutable_spec()->mutable_data()->set_path(folder_ + "/nothing");
  ASSERT_EQ(Submit(request), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_EQ(status.detail().substr(0, 10), "data.path:") << status.detail();
  grpc::ClientContext context;
  WatchRequest watch;
  watch.set_run("unknown");
  auto stream = stub_->Watch(&context, watch);
  RunStatus none;
  EXPECT_FALSE(stream->Read(&none));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CoordinatorServiceTest, FailedProbe_NamesTheWorker) {
  FakeWorker::Behaviour fails;
  fails.fail_probe = true;
  const auto a = Worker("a", 1), b = Worker("b", 2, fails);
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  const RunStatus status = WatchToTheEnd();
  EXPECT_EQ(status.state(), RUN_STATE_FAILED);
  EXPECT_EQ(status.detail(), "worker b could not measure the model: no memory");
}

// A worker that reports more time a microbatch than the plan counts on shows as slow within a few heartbeats.
TEST_F(CoordinatorServiceTest, ThrottledWorker_ShowsAsSlowInTheStatus) {
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  FakeWorker::Behaviour behaviour;
  behaviour.finish_alone = false;
  const auto a = Worker("a", 1, behaviour), b = Worker("b", 2, behaviour);
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kStartStage));
  ASSERT_TRUE(b->WaitForMessage(CoordinatorMessage::kStartStage));
  WorkerMessage beat;
  beat.mutable_heartbeat()->set_epoch(b->epoch());
  beat.mutable_heartbeat()->mutable_counters()->set_microbatches(60);
  beat.mutable_heartbeat()->mutable_counters()->set_training_seconds(60);
  b->Write(beat);
  std::map<std::string, WorkerRow> rows;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!rows["b"].slow() && std::chrono::steady_clock::now() < deadline) {
    grpc::ClientContext context;
    FleetStatusReply fleet;
    ASSERT_TRUE(stub_->FleetStatus(&context, FleetStatusRequest(), &fleet).ok());
    for (const WorkerRow& worker : fleet.workers()) rows[worker.name()] = worker;
  }
  EXPECT_TRUE(rows["b"].slow());
  EXPECT_FALSE(rows["a"].slow());
  EXPECT_NEAR(rows["b"].microbatch_seconds(), 1, 1e-9);
  EXPECT_LT(rows["b"].planned_microbatch_seconds(), 0.1);
}

// A restarted coordinator knew nothing of them.
TEST_F(CoordinatorServiceTest, Restart_ListsEarlierRuns) {
  {
    const auto a = Worker("a", 1), b = Worker("b", 2);
    ASSERT_EQ(Submit(Request()), absl::OkStatus());
    ASSERT_EQ(WatchToTheEnd().state(), RUN_STATE_FINISHED);
    SubmitRequest broken = Request();
    broken.mutable_spec()->set_name("broken");
    broken.mutable_spec()->set_run_dir(folder_ + "/broken");
    broken.mutable_spec()->mutable_data()->set_path(folder_ + "/nothing");
    ASSERT_EQ(Submit(broken), absl::OkStatus());
    while (FleetStatus().runs(1).state() != RUN_STATE_FAILED) {
    }
  }
  EXPECT_EQ(FleetStatus().earlier_runs_size(), 0);
  StartCoordinator(std::chrono::seconds(8));
  FleetStatusReply fleet = FleetStatus();
  EXPECT_EQ(fleet.runs_size(), 0);
  ASSERT_EQ(fleet.earlier_runs_size(), 2);
  EXPECT_EQ(fleet.earlier_runs(0).run(), "tiny");
  EXPECT_EQ(fleet.earlier_runs(0).state(), RUN_STATE_FINISHED);
  EXPECT_EQ(fleet.earlier_runs(0).steps_done(), 6u);
  EXPECT_EQ(fleet.earlier_runs(1).run(), "broken");
  EXPECT_EQ(fleet.earlier_runs(1).state(), RUN_STATE_FAILED);
  EXPECT_EQ(fleet.earlier_runs(1).detail().substr(0, 10), "data.path:");
  SubmitRequest again = Request();
  again.mutable_spec()->set_run_dir(folder_ + "/again");
  ASSERT_EQ(Submit(again), absl::OkStatus());
  fleet = FleetStatus();
  EXPECT_EQ(fleet.runs_size(), 1);
  EXPECT_EQ(fleet.earlier_runs_size(), 1);
}

TEST_F(CoordinatorServiceTest, SecondCoordinator_IsRefusedTheStateDir) {
  CoordinatorOptions options;
  options.listen = "127.0.0.1:0";
  options.state_dir = folder_ + "/state";
  const auto second = CoordinatorServer::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("in use by another coordinator"), absl::string_view::npos);
}

TEST_F(CoordinatorServiceTest, FleetStatus_ListsWorkersAndRuns) {
  const auto a = Worker("a", 1);
  ASSERT_TRUE(a->WaitForMessage(CoordinatorMessage::kRegistered));
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  grpc::ClientContext context;
  FleetStatusReply reply;
  ASSERT_TRUE(stub_->FleetStatus(&context, FleetStatusRequest(), &reply).ok());
  ASSERT_EQ(reply.workers_size(), 1);
  EXPECT_EQ(reply.workers(0).name(), "a");
  ASSERT_EQ(reply.runs_size(), 1);
  EXPECT_EQ(reply.runs(0).state(), RUN_STATE_WAITING);
  EXPECT_EQ(Submit(Request()).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(CoordinatorServiceTest, WorkerLostBehindACheckpoint_AWorkerThatCameLateTakesItsPlace) {
  ASSERT_EQ(Submit(Request()), absl::OkStatus());
  FakeWorker::Behaviour waits;
  waits.waits_at = 4;
  const auto a = Worker("a", 1, waits);
  auto b = Worker("b", 2, waits);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (FleetStatus().runs(0).checkpoint_step() != 4 && std::chrono::steady_clock::now() < deadline) {
  }
  const auto c = Worker("c", 3);
  ASSERT_TRUE(WaitForWorkerState("c", "free"));
  b->Kill();
  const RunStatus status = WatchToTheEnd();
  ASSERT_EQ(status.state(), RUN_STATE_FINISHED) << status.detail();
  EXPECT_EQ(status.steps_done(), 6u);
  EXPECT_EQ(status.first_step(), 0u);
  ASSERT_EQ(status.replans_size(), 1);
  EXPECT_EQ(status.replans(0).lost_worker(), "b");
  EXPECT_EQ(status.replans(0).from_step(), 4u);
  EXPECT_EQ(status.replans(0).recomputed_steps(), 0u);
  ASSERT_EQ(status.plan().stages_size(), 2);
  EXPECT_EQ(status.plan().stages(0).worker(), "a");
  EXPECT_EQ(status.plan().stages(1).worker(), "c");
  EXPECT_EQ(status.record().earlier_plans_size(), 0);  // the cuts are the same
}

}  // namespace
}  // namespace stagecoach
