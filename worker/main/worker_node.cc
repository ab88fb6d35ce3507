#include "worker/main/worker_node.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host_memory.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "model/record_reader.h"
#include "worker/main/host_facts.h"
#include "worker/main/stage_setup.h"

#ifndef STAGECOACH_VERSION
#error "the build defines STAGECOACH_VERSION"
#endif

namespace stagecoach {
namespace {

void SetTiming(const MeasuredUnit& measured, UnitTiming* timing) {
  timing->set_forward_seconds(measured.forward_seconds);
  timing->set_backward_seconds(measured.backward_seconds);
  timing->set_update_seconds(measured.update_seconds);
  timing->set_parameters(measured.parameters);
  timing->set_activation_bytes(measured.activation_bytes);
}

ProbeResult ToProto(const absl::StatusOr<MeasuredUnits>& measured) {
  ProbeResult result;
  if (!measured.ok()) {
    result.set_error(measured.status().ToString());
    return result;
  }
  SetTiming(measured->embedding, result.mutable_embedding());
  SetTiming(measured->block, result.mutable_block());
  SetTiming(measured->tail_block, result.mutable_tail_block());
  SetTiming(measured->head, result.mutable_head());
  return result;
}

}  // namespace

WorkerNode::WorkerNode()
    : worker_loop_("worker"), compute_loop_("compute"), bulk_loop_("bulk"), averaging_loop_("averaging") {}

WorkerNode::~WorkerNode() {
  // Those that post to the worker loop end first.
  averaging_loop_.Stop();
  bulk_loop_.Stop();
  compute_loop_.Stop();
  worker_loop_.Stop();
}

absl::Status WorkerNode::Run(WorkerNodeOptions options) {
  options_ = std::move(options);
  worker_loop_.Post([this] { Begin(); });
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return result_.has_value(); });
  const absl::Status result = *result_;
  lock.unlock();

  bool swept = false;
  worker_loop_.Post([this, &swept] {
    Release("the worker ends");
    session_->Stop();
    // Behind what Release has posted, here and to the averaging loop, which posts back: from here on nothing uses the
    // links.
    averaging_loop_.Post([this, &swept] {
      worker_loop_.Post([this, &swept] {
        session_.reset();
        const std::lock_guard guard(mutex_);
        swept = true;
        ended_.notify_all();
      });
    });
  });
  lock.lock();
  ended_.wait(lock, [&swept] { return swept; });
  return result;
}

void WorkerNode::RequestExit() { End(absl::OkStatus()); }

void WorkerNode::End(absl::Status status) {
  const std::lock_guard lock(mutex_);
  if (!result_) result_ = std::move(status);
  ended_.notify_all();
}

void WorkerNode::Begin() {
  SessionCallbacks callbacks;
  callbacks.make_register = [this] { return MakeRegister(); };
  callbacks.make_heartbeat = [this] { return MakeHeartbeat(); };
  callbacks.on_message = [this](CoordinatorMessage message) { OnMessage(std::move(message)); };
  callbacks.on_lost = [this](absl::Status status) { Release(absl::StrCat("coordinator lost: ", status.ToString())); };
  callbacks.on_given_up = [this](absl::Status status) { End(std::move(status)); };
  session_ = std::make_unique<CoordinatorSession>(&worker_loop_, options_.connector, std::move(callbacks),
                                                  options_.session_limits);
  session_->Start();
}

Register WorkerNode::MakeRegister() {
  incarnation_ = RandomIncarnation();
  Register message;
  message.set_name(options_.name);
  message.set_incarnation(incarnation_);
  message.set_address(options_.advertised_address);
  message.set_device(options_.backend.device);
  message.set_host(HostIdentity());
  message.set_cores(UsableCores());
  message.set_memory_limit_bytes(options_.backend.free_memory ? options_.backend.free_memory()
                                                              : AvailableMemoryBytes());
  message.set_memory_cap_bytes(options_.memory_cap_bytes);
  message.set_version(STAGECOACH_VERSION);
  message.set_torch_version(options_.backend.torch_version);
  message.set_cpu_capability(options_.backend.cpu_capability);
  return message;
}

WorkerCounters WorkerNode::Counters() const {
  WorkerCounters counters;
  if (stage_) counters = stage_->Counters();
  counters.set_resident_bytes(ResidentBytes());
  if (options_.rejections) {
    for (const auto& [reason, count] : options_.rejections()) {
      const auto before = rejections_before_.find(reason);
      const uint64_t since = count - (before == rejections_before_.end() ? 0 : before->second);
      if (since > 0) (*counters.mutable_rejected_frames())[reason] = since;
    }
  }
  return counters;
}

Heartbeat WorkerNode::MakeHeartbeat() const {
  Heartbeat heartbeat;
  if (stage_) {
    heartbeat.set_epoch(stage_->epoch());
    heartbeat.set_next_forward(stage_->next_forward());
    heartbeat.set_next_backward(stage_->next_backward());
  }
  *heartbeat.mutable_counters() = Counters();
  return heartbeat;
}

void WorkerNode::OnMessage(CoordinatorMessage message) {
  // A local reference: an event may end the stage, and the member with it, while it is being handled.
  const std::shared_ptr<StageRunner> stage = stage_;
  switch (message.message_case()) {
    case CoordinatorMessage::kProbeRequest:
      return OnProbe(message.probe_request());
    case CoordinatorMessage::kLinkRequest:
      return OnLinkRequest(message.link_request());
    case CoordinatorMessage::kAssignStage:
      return OnAssign(message.assign_stage());
    case CoordinatorMessage::kStartStage:
      if (stage && stage->epoch() == message.start_stage().epoch()) stage->Start();
      return;
    case CoordinatorMessage::kStopRun:
      if (stage && stage->epoch() == message.stop_run().epoch()) OnStop(message.stop_run(), *stage);
      return;
    case CoordinatorMessage::kRoundFix:
      if (stage && stage->epoch() == message.round_fix().epoch()) stage->OnRound(message);
      return;
    case CoordinatorMessage::kRoundAbort:
      if (stage && stage->epoch() == message.round_abort().epoch()) stage->OnRound(message);
      return;
    case CoordinatorMessage::kRoundCommit:
      if (stage && stage->epoch() == message.round_commit().epoch()) stage->OnRound(message);
      return;
    case CoordinatorMessage::kReleaseStage:
      if (stage && stage->epoch() == message.release_stage().epoch()) Release(message.release_stage().reason());
      return;
    default:
      return;  // from a newer coordinator: nothing that this worker could do
  }
}

void WorkerNode::OnStop(const StopRun& stop, StageRunner& stage) {
  if (stop.hold()) return stage.HoldForStop();
  if (stop.after_step() > 0) return stage.StopAfter(stop.after_step());
  stage.RequestStop();
}

void WorkerNode::OnProbe(const ProbeRequest& request) {
  compute_loop_.Post([this, spec = request.spec(), registered_as = incarnation_] {
    const absl::StatusOr<RunConfig> config = ReadRunConfig(spec);
    const absl::StatusOr<MeasuredUnits> measured =
        config.ok() ? options_.backend.measure(*config) : absl::StatusOr<MeasuredUnits>(config.status());
    worker_loop_.Post([this, result = ToProto(measured), registered_as] {
      if (!session_ || registered_as != incarnation_) return;
      WorkerMessage message;
      *message.mutable_probe_result() = result;
      session_->Send(std::move(message));
    });
  });
}

void WorkerNode::OnLinkRequest(const LinkRequest& request) {
  bulk_loop_.Post([this, peer = request.peer(), address = AddressOf(request.peer(), request.address()),
                   registered_as = incarnation_] {
    LinkResult result;
    result.set_peer(peer);
    const absl::StatusOr<LinkMeasurement> measured = options_.probe_link(address);
    if (measured.ok()) {
      result.set_rtt_seconds(measured->rtt_seconds);
      result.set_bytes_per_second(measured->bytes_per_second);
    } else {
      result.set_error(measured.status().ToString());
    }
    worker_loop_.Post([this, result, registered_as] {
      if (!session_ || registered_as != incarnation_) return;
      WorkerMessage message;
      *message.mutable_link_result() = result;
      session_->Send(std::move(message));
    });
  });
}

void WorkerNode::OnAssign(const AssignStage& assign) {
  if (stage_) Release("another stage is assigned");
  const absl::Status status = Assign(assign);
  if (!status.ok()) ReportFailure(assign.plan().epoch(), status, "");
}

absl::Status WorkerNode::Assign(const AssignStage& assign) {
  const auto address_of = [this](const std::string& worker, const std::string& advertised) {
    return AddressOf(worker, advertised);
  };
  ASSIGN_OR_RETURN(StageOrder order, ReadStageOrder(assign, options_.name, incarnation_, address_of));
  if (options_.rejections) rejections_before_ = options_.rejections();
  const uint64_t epoch = order.setup.epoch;
  StageEvents events;
  events.on_ready = [this] { OnReady(); };
  events.on_report = [this](WorkerMessage message) {
    if (message.has_stage_finished()) *message.mutable_stage_finished()->mutable_counters() = Counters();
    session_->Send(std::move(message));
  };
  events.on_failed = [this, epoch](absl::Status status, std::string peer) {
    stage_.reset();
    ReportFailure(epoch, status, peer);
  };
  stage_ =
      StageRunner::Create(std::move(order.setup),
                          StageLoops{&worker_loop_, &compute_loop_, &bulk_loop_, &averaging_loop_}, std::move(events));
  CreateExecutor(std::move(order.executor), epoch);
  // Loading and connecting go on at the same time: all stages of the plan do both now.
  const std::shared_ptr<StageRunner> stage = stage_;
  stage->OpenLinks(*options_.links);
  return absl::OkStatus();
}

void WorkerNode::CreateExecutor(ExecutorOptions options, uint64_t epoch) {
  options.device = options_.backend.device;
  options.pool = options_.pool;
  compute_loop_.Post([this, options = std::move(options), epoch] {
    worker_loop_.Post(
        [this, epoch, loaded = Load(options_.backend, options)]() mutable { OnLoaded(epoch, std::move(loaded)); });
  });
}

absl::StatusOr<WorkerNode::Loaded> WorkerNode::Load(const ComputeBackend& backend, const ExecutorOptions& options) {
  Loaded loaded;
  ASSIGN_OR_RETURN(std::unique_ptr<StageExecutor> executor, backend.create(options));
  loaded.executor = std::move(executor);
  ASSIGN_OR_RETURN(loaded.hashes, backend.fingerprint(options.config));
  const RunConfig& config = options.config;
  if (options.first_step > 0 && config.averaging.rounds.enabled()) {
    ASSIGN_OR_RETURN(loaded.common,
                     ReadCommonState(options.checkpoint_dir, options.first_step, config.total_steps, config.averaging,
                                     config.first_unit(options.stage), loaded.executor->unit_parameters()));
  }
  return loaded;
}

void WorkerNode::OnLoaded(uint64_t epoch, absl::StatusOr<Loaded> loaded) {
  const std::shared_ptr<StageRunner> stage = stage_;
  if (!stage || stage->epoch() != epoch) {
    // Released meanwhile: the weights go where they were made.
    if (loaded.ok()) compute_loop_.Post([gone = std::move(loaded->executor)]() mutable { gone.reset(); });
    return;
  }
  if (!loaded.ok()) {
    Release("the executor could not be made");
    return ReportFailure(epoch, loaded.status(), "");
  }
  fingerprint_ = std::move(loaded->hashes);
  stage->SetExecutor(std::move(loaded->executor), std::move(loaded->common));
}

void WorkerNode::OnReady() {
  WorkerMessage message;
  StageReady& ready = *message.mutable_stage_ready();
  ready.set_epoch(stage_->epoch());
  ready.set_parameters(stage_->parameter_count());
  ready.set_resident_bytes(ResidentBytes());
  ready.set_basis_sha256(fingerprint_.basis_sha256);
  ready.set_anchor_sha256(fingerprint_.anchor_sha256);
  session_->Send(std::move(message));
}

void WorkerNode::ReportFailure(uint64_t epoch, const absl::Status& status, const std::string& peer) {
  WorkerMessage message;
  message.mutable_stage_failed()->set_epoch(epoch);
  message.mutable_stage_failed()->set_error(status.ToString());
  message.mutable_stage_failed()->set_peer(peer);
  session_->Send(std::move(message));
}

void WorkerNode::Release(const std::string& reason) {
  if (!stage_) return;
  Log(LogLevel::kInfo, options_.name, "stage_released",
      {{"epoch", absl::StrCat(stage_->epoch())}, {"reason", std::string(reason)}});
  const std::shared_ptr<StageRunner> stage = std::exchange(stage_, nullptr);
  stage->Close();
}

std::string WorkerNode::AddressOf(const std::string& worker, const std::string& advertised) const {
  const auto found = options_.dial.find(worker);
  return found == options_.dial.end() ? advertised : found->second;
}

}  // namespace stagecoach
