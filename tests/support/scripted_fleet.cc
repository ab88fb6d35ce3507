#include "tests/support/scripted_fleet.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach::testing {

RunRecord FakeRunRecord(uint32_t stages, uint32_t microbatches, uint32_t j, uint64_t steps,
                        const std::string& run_dir) {
  RunRecord record;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(spec {
             name: "run"
             seed: 7
             threads: 1
             model {
               architecture: ARCHITECTURE_LLAMA
               width: 16
               heads: 2
               kv_heads: 2
               feedforward: 32
               vocabulary: 64
               max_tokens: 8
               norm: NORM_PRE
               compression: COMPRESSION_NONE
               rope_theta: 10000
               compute: COMPUTE_TYPE_FP32
               norm_epsilon: 1e-5
             }
             data { path: "/nowhere" validation_fraction: 0.1 }
             optimizer {
               kind: OPTIMIZER_KIND_ADAMW
               learning_rate: 0.1
               weight_decay: 0
               beta1: 0.9
               beta2: 0.95
               epsilon: 1e-8
               rate_schedule: RATE_SCHEDULE_CONSTANT
               clip: CLIP_GLOBAL
               clip_norm: 1
             }
             schedule { kind: SCHEDULE_KIND_FD_2BW sequences: 2 sequence_tokens: 8 recompute: RECOMPUTE_ON }
             evaluation { every_steps: 3 microbatches: 2 }
             checkpoint { every_steps: 0 keep: 3 }
           }
           training_windows: 100
           evaluation_windows: 10)pb",
      &record));
  record.mutable_spec()->mutable_model()->set_layers(stages + 2);
  record.mutable_spec()->mutable_schedule()->set_steps(steps);
  record.mutable_spec()->mutable_schedule()->set_microbatches(microbatches);
  record.mutable_spec()->set_run_dir(run_dir);
  JEntry* entry = record.add_j_table();
  entry->set_from_step(0);
  entry->set_j(j);
  for (uint32_t cut = 0; cut + 1 < stages; ++cut) {
    record.add_cuts(cut + 2);
    record.add_codecs(WIRE_FORMAT_FP32);
  }
  return record;
}

// ---- control
// ---------------------------------------------------------------------------------------------------------

struct ScriptedControl::Inbox {
  mutable std::mutex mutex;
  std::condition_variable arrived;
  std::vector<WorkerMessage> received;
  std::shared_ptr<ControlCallbacks> callbacks;  // of the newest stream; used on the loop only
};

class ScriptedControl::Stream final : public ControlStream {
 public:
  Stream(std::shared_ptr<Inbox> inbox, std::shared_ptr<ControlCallbacks> callbacks)
      : inbox_(std::move(inbox)), callbacks_(std::move(callbacks)) {}
  ~Stream() override { const ControlCallbacks gone = std::exchange(*callbacks_, ControlCallbacks{}); }
  void Send(WorkerMessage message) override {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->received.push_back(std::move(message));
    inbox_->arrived.notify_all();
  }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<ControlCallbacks> callbacks_;
};

ScriptedControl::ScriptedControl(EventLoop* loop) : loop_(loop), inbox_(std::make_shared<Inbox>()) {}

std::unique_ptr<ControlStream> ScriptedControl::Open(ControlCallbacks callbacks) {
  auto shared = std::make_shared<ControlCallbacks>(std::move(callbacks));
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->callbacks = shared;
  }
  return std::make_unique<Stream>(inbox_, shared);
}

void ScriptedControl::Send(CoordinatorMessage message) {
  const std::lock_guard lock(inbox_->mutex);
  loop_->Post([callbacks = inbox_->callbacks, message = std::move(message)] {
    if (callbacks->on_message) callbacks->on_message(message);
  });
}

void ScriptedControl::Break(absl::Status status) {
  const std::lock_guard lock(inbox_->mutex);
  loop_->Post([callbacks = inbox_->callbacks, status = std::move(status)] {
    if (callbacks->on_closed) callbacks->on_closed(status);
  });
}

bool ScriptedControl::WaitFor(const std::function<bool(const WorkerMessage&)>& wanted, size_t* from,
                              WorkerMessage* found, std::chrono::seconds deadline) {
  std::unique_lock lock(inbox_->mutex);
  return inbox_->arrived.wait_for(lock, deadline, [&] {
    for (; *from < inbox_->received.size(); ++*from) {
      if (!wanted(inbox_->received[*from])) continue;
      *found = inbox_->received[(*from)++];
      return true;
    }
    return false;
  });
}

std::vector<WorkerMessage> ScriptedControl::Received() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->received;
}

// ---- fleet
// -----------------------------------------------------------------------------------------------------------

ScriptedFleet::ScriptedFleet(uint32_t workers, const FakeCosts& costs_per_unit, const LinkMaker& make_links,
                             SessionLimits limits) {
  for (uint32_t i = 0; i < workers; ++i) {
    auto member = std::make_unique<Member>();
    member->pool = HostBufferPool::Create(64u << 20);
    member->links = make_links(member->node.loop(), member->pool);
    member->control = std::make_unique<ScriptedControl>(member->node.loop());
    member->name = absl::StrCat("worker-", i);
    WorkerNodeOptions options;
    options.name = member->name;
    options.advertised_address = member->links.address;
    options.backend = FakeBackend(costs_per_unit);
    options.pool = member->pool;
    options.connector = member->control.get();
    options.links = member->links.factory.get();
    options.probe_link = [](const std::string&) -> absl::StatusOr<LinkMeasurement> {
      return LinkMeasurement{0.001, 1e9};
    };
    options.session_limits = limits;
    Member* const raw = member.get();
    member->thread = std::thread([raw, options] { raw->result = raw->node.Run(options); });
    members_.push_back(std::move(member));
  }
}

ScriptedFleet::~ScriptedFleet() {
  for (auto& member : members_) {
    member->node.RequestExit();
    if (member->thread.joinable()) member->thread.join();
  }
}

void ScriptedFleet::StopWorker(uint32_t worker) {
  members_[worker]->node.RequestExit();
  (void)ResultOf(worker);
}

absl::Status ScriptedFleet::ResultOf(uint32_t worker) {
  if (members_[worker]->thread.joinable()) members_[worker]->thread.join();
  return members_[worker]->result;
}

void ScriptedFleet::Assign(const Life& life) {
  num_stages_ = static_cast<uint32_t>(life.record.cuts_size()) + 1;
  ASSERT_EQ(life.windows.size(), num_stages_);
  ASSERT_LE(num_stages_, members_.size());
  Plan plan;
  plan.set_run("run-1");
  plan.set_cluster("main");
  plan.set_epoch(++epoch_);
  const uint32_t units = life.record.spec().model().layers() + 2;
  for (uint32_t i = 0; i < num_stages_; ++i) {
    Member& member = *members_[i];
    WorkerMessage message;
    size_t from = 0;
    ASSERT_TRUE(member.control->WaitFor([](const WorkerMessage& m) { return m.has_register_(); }, &from, &message));
    if (epoch_ == 1) {
      CoordinatorMessage registered;
      registered.mutable_registered()->set_heartbeat_interval_ms(50);
      member.control->Send(registered);
    }
    StageAssignment* stage = plan.add_stages();
    stage->set_stage(i);
    stage->set_first_unit(i == 0 ? 0 : life.record.cuts(static_cast<int>(i) - 1));
    stage->set_end_unit(i + 1 == num_stages_ ? units : life.record.cuts(static_cast<int>(i)));
    stage->set_worker(member.name);
    stage->set_incarnation(message.register_().incarnation());
    stage->set_address(message.register_().address());
    stage->set_window(life.windows[i]);
  }
  for (uint32_t i = 0; i < num_stages_; ++i) {
    CoordinatorMessage message;
    AssignStage& assign = *message.mutable_assign_stage();
    *assign.mutable_record() = life.record;
    *assign.mutable_plan() = plan;
    assign.set_stage(i);
    assign.set_checkpoint_dir(life.checkpoint_dir);
    assign.set_first_step(life.first_step);
    assign.set_stop_after_step(life.stop_after);
    members_[i]->control->Send(message);
  }
}

void ScriptedFleet::StartStages() {
  for (uint32_t i = 0; i < num_stages_; ++i) {
    WorkerMessage message;
    ASSERT_TRUE(members_[i]->control->WaitFor(
        [this](const WorkerMessage& m) {
          return (m.has_stage_ready() && m.stage_ready().epoch() == epoch_) || m.has_stage_failed();
        },
        &members_[i]->position, &message));
    ASSERT_TRUE(message.has_stage_ready()) << message.ShortDebugString();
  }
  for (uint32_t i = 0; i < num_stages_; ++i) {
    CoordinatorMessage message;
    message.mutable_start_stage()->set_epoch(epoch_);
    members_[i]->control->Send(message);
  }
}

LifeResult ScriptedFleet::Finish() {
  LifeResult result;
  for (uint32_t i = 0; i < num_stages_; ++i) {
    WorkerMessage message;
    const auto collect = [&](const WorkerMessage& m) {
      if (m.has_step_report() && m.step_report().epoch() == epoch_) {
        const StepReport& report = m.step_report();
        if (report.has_loss()) result.losses[report.step()] = report.loss();
        if (report.has_scalar()) result.clips[report.step()] = report.clip();
        if (report.has_scalar()) result.square_sums[report.step()] = report.square_sum();
      } else if (m.has_evaluation_report() && m.evaluation_report().epoch() == epoch_) {
        result.evaluations.push_back({m.evaluation_report().after_step(), m.evaluation_report().loss()});
      } else if (m.has_checkpoint_part() && m.checkpoint_part().epoch() == epoch_) {
        result.parts.push_back(m.checkpoint_part());
      } else if (m.has_stage_failed() && m.stage_failed().epoch() == epoch_) {
        result.failures.push_back(m.stage_failed());
        return true;
      }
      return m.has_stage_finished() && m.stage_finished().epoch() == epoch_;
    };
    if (!members_[i]->control->WaitFor(collect, &members_[i]->position, &message, std::chrono::seconds(60))) {
      ADD_FAILURE() << "stage " << i << " did not end";
      break;
    }
    if (!message.has_stage_finished()) continue;
    result.counters.push_back(message.stage_finished().counters());
    result.steps = message.stage_finished().steps();
  }
  for (uint32_t i = 0; i < num_stages_; ++i) {
    CoordinatorMessage message;
    message.mutable_release_stage()->set_epoch(epoch_);
    message.mutable_release_stage()->set_reason("the life is over");
    members_[i]->control->Send(message);
  }
  return result;
}

LifeResult ScriptedFleet::Run(const Life& life) {
  Assign(life);
  if (!::testing::Test::HasFatalFailure()) StartStages();
  if (::testing::Test::HasFatalFailure()) return {};
  return Finish();
}

CheckpointManifest ManifestOf(const RunRecord& record, uint64_t step, const std::vector<CheckpointPart>& parts) {
  CheckpointManifest manifest;
  manifest.set_format(1);
  manifest.set_step(step);
  *manifest.mutable_record() = record;
  std::vector<CheckpointPart> sorted;
  for (const CheckpointPart& part : parts) {
    if (part.step() == step) sorted.push_back(part);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const CheckpointPart& a, const CheckpointPart& b) { return a.unit() < b.unit(); });
  for (const CheckpointPart& part : sorted) {
    EXPECT_EQ(part.error(), "");
    CheckpointFile* file = manifest.add_files();
    file->set_unit(part.unit());
    file->set_name(part.file());
    file->set_sha256(part.sha256());
    file->set_bytes(part.bytes());
    file->set_weights_sha256(part.weights_sha256());
  }
  return manifest;
}

}  // namespace stagecoach::testing
