#include "tests/support/local_pipeline.h"

#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "common/counter_rng.h"
#include "common/status_macros.h"
#include "worker/main/stage_compute.h"

namespace stagecoach {
namespace {

constexpr size_t kPoolBytes = size_t{1} << 30;  // tests hold far less

// What one stage tells its neighbour.
struct Frame {
  std::variant<SendActivation, SendGradient, SendNorms, SendScalar, SendStop> content;
  Payload payload;
};

struct Station {
  StageCore core;
  std::unique_ptr<StageExecutor> executor;
  std::deque<Frame> from_above, from_below;
  std::map<uint64_t, Payload> inputs, gradients;  // by item sequence
  std::optional<ComputeEffect> pending;
  Payload output;
};

class LocalPipeline {
 public:
  explicit LocalPipeline(const LocalPipelineOptions& options)
      : options_(options), config_(options.config), rng_(options.interleaving_seed, RngPurpose::kTest, 77) {}

  absl::StatusOr<LocalPipelineResult> Run() {
    for (uint32_t stage = 0; stage < config_.num_stages(); ++stage) RETURN_IF_ERROR(AddStation(stage));
    for (uint32_t stage = 0; stage < stations_.size(); ++stage) {
      RETURN_IF_ERROR(Apply(stage, stations_[stage]->core.Start()));
    }
    while (!Finished()) RETURN_IF_ERROR(DoSomething());
    return std::move(result_);
  }

 private:
  absl::Status AddStation(uint32_t stage) {
    StageCoreConfig core;
    core.stage = stage;
    core.num_stages = config_.num_stages();
    core.window = options_.windows[stage];
    core.input_window = stage == 0 ? 0 : options_.windows[stage - 1];
    core.rule = config_.RuleOfStage(stage);
    core.order = config_.Order();
    core.total_steps = config_.total_steps;
    core.first_step = options_.first_step;
    core.end_step = options_.end_step == 0 ? config_.total_steps : options_.end_step;
    core.checkpoint_every = config_.checkpoint_every;
    core.policy = options_.policy;
    core.clip_scope = config_.clip_per_stage ? ClipScope::kStage
                      : config_.clip_none    ? ClipScope::kNone
                                             : ClipScope::kGlobal;
    core.clip_norm = config_.clip_norm;
    ExecutorOptions executor;
    executor.config = config_;
    executor.stage = stage;
    executor.window = core.window;
    executor.first_step = options_.first_step;
    executor.checkpoint_dir = options_.checkpoint_dir;
    executor.pool = pool_;
    auto station = std::make_unique<Station>(Station{StageCore(core), nullptr, {}, {}, {}, {}, std::nullopt, {}});
    ASSIGN_OR_RETURN(station->executor, options_.create_executor(executor));
    stations_.push_back(std::move(station));
    return absl::OkStatus();
  }

  bool Finished() const {
    for (const auto& station : stations_) {
      if (!station->core.finished()) return false;
    }
    return true;
  }

  absl::Status DoSomething() {
    enum class Kind { kCompute, kFromAbove, kFromBelow };
    std::vector<std::pair<uint32_t, Kind>> possible;
    for (uint32_t stage = 0; stage < stations_.size(); ++stage) {
      if (stations_[stage]->pending) possible.push_back({stage, Kind::kCompute});
      if (!stations_[stage]->from_above.empty()) possible.push_back({stage, Kind::kFromAbove});
      if (!stations_[stage]->from_below.empty()) possible.push_back({stage, Kind::kFromBelow});
    }
    if (possible.empty()) return absl::InternalError("the pipeline stands still before its end");
    const auto [stage, kind] = possible[rng_.Word(draws_++) % possible.size()];
    Station& station = *stations_[stage];
    if (kind == Kind::kCompute) return Compute(stage);
    std::deque<Frame>& queue = kind == Kind::kFromAbove ? station.from_above : station.from_below;
    Frame frame = std::move(queue.front());
    queue.pop_front();
    return Apply(stage, Receive(&station, std::move(frame)));
  }

  StageEffects Receive(Station* station, Frame frame) {
    if (const auto* activation = std::get_if<SendActivation>(&frame.content)) {
      station->inputs[activation->item.sequence] = std::move(frame.payload);
      return station->core.OnInput(activation->item);
    }
    if (const auto* gradient = std::get_if<SendGradient>(&frame.content)) {
      station->gradients[gradient->item.sequence] = std::move(frame.payload);
      return station->core.OnGradient(gradient->item);
    }
    if (const auto* norms = std::get_if<SendNorms>(&frame.content)) {
      return station->core.OnNorms(norms->step, norms->norms);
    }
    if (const auto* scalar = std::get_if<SendScalar>(&frame.content)) {
      return station->core.OnScalar(scalar->step, scalar->clip, scalar->square_sum, scalar->skip);
    }
    return station->core.OnStop(std::get<SendStop>(frame.content).end_step);
  }

  Payload InputOf(Station* station, const ComputeEffect& effect) {
    if (const auto* backward = std::get_if<RunBackward>(&effect)) return station->gradients[backward->item.sequence];
    if (const auto* forward = std::get_if<RunForward>(&effect)) return station->inputs[forward->item.sequence];
    if (const auto* both = std::get_if<RunForwardBackward>(&effect)) return station->inputs[both->item.sequence];
    if (const auto* evaluation = std::get_if<RunEvaluation>(&effect)) return station->inputs[evaluation->item.sequence];
    return Payload{};
  }

  absl::Status Compute(uint32_t stage) {
    Station& station = *stations_[stage];
    const ComputeEffect effect = *std::exchange(station.pending, std::nullopt);
    ComputeOutcome outcome = RunOnExecutor(*station.executor, effect, InputOf(&station, effect));
    RETURN_IF_ERROR(outcome.status);
    if (const auto* backward = std::get_if<RunBackward>(&effect)) station.gradients.erase(backward->item.sequence);
    if (const auto* forward = std::get_if<RunForward>(&effect); forward != nullptr && !forward->item.is_evaluation) {
      Inject(stage, forward->item, &outcome.output);
    }
    Note(effect, outcome);
    station.output = std::move(outcome.output);
    return Apply(stage, station.core.OnComputeDone(std::move(outcome.norms)));
  }

  void Inject(uint32_t stage, const Item& item, Payload* output) {
    const auto& injection = options_.inject_nonfinite;
    if (!injection || injection->n != item.n || injection->stage != stage) return;
    auto zero = *pool_->Allocate(output->bytes->size());
    std::memset(zero->bytes().data(), 0, zero->size());
    *output = Payload{std::move(zero), true};
  }

  // What the last stage and the checkpoints yield.
  void Note(const ComputeEffect& effect, ComputeOutcome& outcome) {
    if (const auto* both = std::get_if<RunForwardBackward>(&effect)) {
      loss_ += outcome.loss;
      if (both->item.n % config_.microbatches == config_.microbatches - 1) {
        result_.losses.push_back(std::exchange(loss_, 0) / config_.microbatches);
      }
    } else if (const auto* evaluation = std::get_if<RunEvaluation>(&effect)) {
      evaluation_loss_ += outcome.loss;
      if (evaluation->item.evaluation + 1 == config_.evaluation_microbatches) {
        const double tokens = static_cast<double>(config_.evaluation_microbatches) * config_.sequences * config_.tokens;
        result_.evaluations.push_back(
            {evaluation->item.n / config_.microbatches, std::exchange(evaluation_loss_, 0) / tokens});
      }
    } else if (const auto* finish = std::get_if<RunFinishCapture>(&effect)) {
      for (CheckpointUnit& unit : outcome.units) {
        result_.checkpoints[finish->checkpoint_step][unit.unit] = std::move(unit);
      }
    }
  }

  void NoteScalar(uint32_t stage, const ReportScalar& scalar) {
    const size_t index = scalar.step - options_.first_step;
    if (result_.clips.size() <= index) {
      result_.clips.resize(index + 1);
      result_.square_sums.resize(index + 1);
    }
    std::vector<double>& clips = result_.clips[index];
    clips.resize(config_.clip_per_stage ? config_.num_stages() : 1);
    clips[stage] = scalar.clip;
    if (stage == 0) result_.square_sums[index] = scalar.square_sum;
    if (scalar.skip && stage == 0) result_.skipped_steps.push_back(scalar.step);
  }

  absl::Status Apply(uint32_t stage, StageEffects effects) {
    RETURN_IF_ERROR(effects.status());
    for (StageEffect& effect : *effects) {
      std::visit([&](auto& value) { Perform(stage, value); }, effect);
    }
    return absl::OkStatus();
  }

  void Send(uint32_t from, bool forward, Frame frame) {
    (forward ? stations_[from + 1]->from_above : stations_[from - 1]->from_below).push_back(std::move(frame));
  }

  void Perform(uint32_t stage, SendActivation& send) { Send(stage, true, {send, std::move(stations_[stage]->output)}); }
  void Perform(uint32_t stage, SendGradient& send) {
    Send(stage, false, {send, send.item.is_evaluation ? Payload{} : std::move(stations_[stage]->output)});
  }
  void Perform(uint32_t stage, SendNorms& send) { Send(stage, false, {std::move(send), {}}); }
  void Perform(uint32_t stage, SendScalar& send) { Send(stage, true, {send, {}}); }
  void Perform(uint32_t stage, SendStop& send) { Send(stage, true, {send, {}}); }
  void Perform(uint32_t stage, ReleaseInput& release) { stations_[stage]->inputs.erase(release.item.sequence); }
  void Perform(uint32_t stage, ReportScalar& scalar) { NoteScalar(stage, scalar); }
  void Perform(uint32_t, ReportStopPoint&) {}
  void Perform(uint32_t, StageFinished&) {}
  template <typename Effect>
  void Perform(uint32_t stage, Effect& compute) {
    stations_[stage]->pending = std::move(compute);
  }

  const LocalPipelineOptions& options_;
  const RunConfig& config_;
  const CounterRng rng_;
  uint64_t draws_ = 0;
  std::shared_ptr<HostBufferPool> pool_ = HostBufferPool::Create(kPoolBytes);
  std::vector<std::unique_ptr<Station>> stations_;
  LocalPipelineResult result_;
  double loss_ = 0, evaluation_loss_ = 0;
};

}  // namespace

absl::StatusOr<LocalPipelineResult> RunLocalPipeline(const LocalPipelineOptions& options) {
  return LocalPipeline(options).Run();
}

std::map<std::string, std::string> StateOf(const std::map<uint32_t, CheckpointUnit>& checkpoint) {
  std::map<std::string, std::string> state;
  for (const auto& [number, unit] : checkpoint) {
    for (const CheckpointTensor& tensor : unit.tensors) state[tensor.name] = tensor.bytes;
  }
  return state;
}

}  // namespace stagecoach
