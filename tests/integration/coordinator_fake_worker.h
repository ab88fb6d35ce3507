// A worker that speaks the coordinator's protocol and computes nothing: it answers probes, "loads" stages, reports
// steps and writes small checkpoint files. Tests switch parts of it off.
//
// Threading: a reader thread and a heartbeat thread; methods from the test's thread.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/cluster_rules.h"
#include "common/data_tally.h"
#include "common/grpc/grpc_status.h"
#include "protos/coordinator.grpc.pb.h"

namespace stagecoach::testing {

// Shared by the workers of a test: measurements must not overlap.
struct ProbeMeter {
  std::atomic<int> running{0}, most{0}, total{0};
};

class FakeWorker {
 public:
  struct Behaviour {
    bool heartbeats = true;
    bool finish_alone = true;  // runs all steps as soon as it is started; else until StopRun
    bool fail_probe = false;
    bool trains_on_other_data = false;
    uint64_t waits_at = 0;      // in the first plan it goes on to nothing behind the checkpoint of that step
    uint64_t disk_full_at = 0;  // its part of the checkpoint of that step cannot be written
    ProbeMeter* meter = nullptr;
  };

  FakeWorker(int port, const std::string& name, uint64_t incarnation, Behaviour behaviour)
      : name_(name), behaviour_(behaviour) {
    stub_ =
        Coordinator::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    stream_ = stub_->Session(&context_);
    WorkerMessage message;
    Register* hello = message.mutable_register_();
    hello->set_name(name);
    hello->set_incarnation(incarnation);
    hello->set_address(absl::StrCat("127.0.0.1:1"));
    hello->set_host("laptop");
    hello->set_cores(2);
    Write(message);
    reader_ = std::thread([this] { Read(); });
    heart_ = std::thread([this] { Beat(); });
  }
  ~FakeWorker() {
    Kill();
    reader_.join();
    heart_.join();
  }

  // As if the process had been killed.
  void Kill() {
    context_.TryCancel();
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  // Lives on, but says nothing any more.
  void FallSilent() { behaviour_.heartbeats = false; }
  void Write(const WorkerMessage& message) {
    const std::lock_guard lock(write_mutex_);
    stream_->Write(message);
  }
  bool WaitForMessage(CoordinatorMessage::MessageCase kind) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return received_.count(kind) > 0; });
  }
  // Status of the stream once the coordinator has closed it.
  absl::Status WaitForEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ended_; });
    return ended_ ? end_ : absl::DeadlineExceededError("the stream is still open");
  }
  uint64_t epoch() const { return epoch_; }

 private:
  void Read() {
    CoordinatorMessage message;
    while (stream_->Read(&message)) {
      Handle(message);
      const std::lock_guard lock(mutex_);
      received_.insert(message.message_case());
      changed_.notify_all();
    }
    const grpc::Status status = stream_->Finish();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    end_ = FromGrpcStatus(status);
    stopping_ = true;
    changed_.notify_all();
  }
  void Beat() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return stopping_; });
      if (stopping_ || !behaviour_.heartbeats) continue;
      lock.unlock();
      WorkerMessage message;
      message.mutable_heartbeat()->set_epoch(epoch_);
      Write(message);
      lock.lock();
    }
  }
  void Handle(const CoordinatorMessage& message) {
    WorkerMessage reply;
    switch (message.message_case()) {
      case CoordinatorMessage::kProbeRequest: {
        Measured();
        if (behaviour_.fail_probe) reply.mutable_probe_result()->set_error("no memory");
        for (UnitTiming* unit :
             {reply.mutable_probe_result()->mutable_embedding(), reply.mutable_probe_result()->mutable_block(),
              reply.mutable_probe_result()->mutable_tail_block(), reply.mutable_probe_result()->mutable_head()}) {
          unit->set_forward_seconds(0.001);
          unit->set_backward_seconds(0.002);
        }
        return Write(reply);
      }
      case CoordinatorMessage::kLinkRequest:
        Measured();
        reply.mutable_link_result()->set_peer(message.link_request().peer());
        reply.mutable_link_result()->set_rtt_seconds(0.001);
        reply.mutable_link_result()->set_bytes_per_second(1e8);
        return Write(reply);
      case CoordinatorMessage::kAssignStage:
        assign_ = message.assign_stage();
        epoch_ = assign_.plan().epoch();
        reply.mutable_stage_ready()->set_epoch(epoch_);
        reply.mutable_stage_ready()->set_basis_sha256("basis");
        return Write(reply);
      case CoordinatorMessage::kStartStage:
        if (behaviour_.waits_at > assign_.first_step()) {
          RunSteps(behaviour_.waits_at, /*finish=*/false);
          return;
        }
        if (behaviour_.finish_alone) RunSteps(assign_.stop_after_step());
        return;
      case CoordinatorMessage::kStopRun:
        if (message.stop_run().hold()) {  // clusters stop at different places
          reply.mutable_stop_point()->set_epoch(epoch_);
          reply.mutable_stop_point()->set_step(assign_.first_step() + 2 + assign_.cluster());
          return Write(reply);
        }
        return RunSteps(message.stop_run().after_step() > 0 ? message.stop_run().after_step()
                                                            : assign_.first_step() + 2);
      default:
        return;
    }
  }
  void Measured() {
    if (behaviour_.meter == nullptr) return;
    const int running = ++behaviour_.meter->running;
    if (running > behaviour_.meter->most) behaviour_.meter->most = running;
    ++behaviour_.meter->total;
    std::this_thread::yield();
    --behaviour_.meter->running;
  }

 public:
  void RunSteps(uint64_t end, bool finish = true) {
    const bool first = assign_.stage() == 0;
    const bool last = static_cast<int>(assign_.stage()) + 1 == assign_.plan().stages_size();
    for (uint64_t step = assign_.first_step(); step < end; ++step) {
      WorkerMessage message;
      StepReport* report = message.mutable_step_report();
      report->set_epoch(epoch_);
      report->set_step(step);
      if (first) {
        report->set_has_scalar(true);
        report->set_clip(1);
        report->set_square_sum(4);
        Write(message);
      }
      report->set_has_scalar(false);
      if (last) {
        report->set_has_loss(true);
        report->set_loss(5.0 - static_cast<double>(step) / 100);
        Write(message);
      }
      if (step + 1 == behaviour_.disk_full_at) ReportFullDisk(step + 1);
    }
    const StageAssignment& own = assign_.plan().stages(static_cast<int>(assign_.stage()));
    const auto clusters = static_cast<uint32_t>(std::max(1, assign_.record().clusters_size()));
    const std::string folder = absl::StrCat(CheckpointDir(assign_.record().spec().run_dir(), end), "/",
                                            ClusterFolder(assign_.cluster(), clusters));
    const bool full = end == behaviour_.disk_full_at;
    for (uint32_t unit = own.first_unit(); unit < own.end_unit() && !full; ++unit) {
      WorkerMessage message;
      CheckpointPart* part = message.mutable_checkpoint_part();
      const std::string bytes = absl::StrCat("unit ", unit);
      part->set_epoch(epoch_);
      part->set_step(end);
      part->set_unit(unit);
      part->set_file(LayerFileName(unit));
      part->set_sha256(WriteFileDurably(folder, part->file(), bytes).value());
      part->set_weights_sha256(std::string(64, 'a'));
      part->set_bytes(bytes.size());
      Write(message);
    }
    if (!finish) return;
    WorkerMessage message;
    message.mutable_stage_finished()->set_epoch(epoch_);
    message.mutable_stage_finished()->set_steps(end);
    const DataTally trained = TrainedOn(end);
    message.mutable_stage_finished()->set_microbatches(trained.microbatches());
    message.mutable_stage_finished()->set_data_digest(trained.digest() + (behaviour_.trains_on_other_data ? 1 : 0));
    Write(message);
  }

 private:
  void ReportFullDisk(uint64_t step) {
    WorkerMessage message;
    message.mutable_checkpoint_part()->set_epoch(epoch_);
    message.mutable_checkpoint_part()->set_step(step);
    message.mutable_checkpoint_part()->set_unit(assign_.plan().stages(static_cast<int>(assign_.stage())).first_unit());
    message.mutable_checkpoint_part()->set_error("no space left on device");
    Write(message);
  }
  DataTally TrainedOn(uint64_t end) const {
    std::vector<uint64_t> steps_per_round;
    for (const ClusterRecord& row : assign_.record().clusters()) steps_per_round.push_back(row.steps_per_round());
    if (steps_per_round.empty()) steps_per_round.push_back(1);
    const ClusterSteps steps(steps_per_round, assign_.cluster());
    const uint32_t m = assign_.record().spec().schedule().microbatches();
    DataTally tally;
    for (uint64_t n = assign_.first_step() * m; n < end * m; ++n) tally.Add(steps.GlobalMicrobatch(n, m));
    return tally;
  }

  const std::string name_;
  Behaviour behaviour_;
  grpc::ClientContext context_;
  std::unique_ptr<Coordinator::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<WorkerMessage, CoordinatorMessage>> stream_;
  std::mutex write_mutex_, mutex_;
  std::condition_variable changed_;
  std::set<int> received_;
  bool stopping_ = false, ended_ = false;
  absl::Status end_;
  AssignStage assign_;
  std::atomic<uint64_t> epoch_{0};
  std::thread reader_, heart_;
};

}  // namespace stagecoach::testing
