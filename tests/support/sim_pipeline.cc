#include "tests/support/sim_pipeline.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/counter_rng.h"

namespace stagecoach {
namespace {

// What travels between neighbours.
using Message = std::variant<SendActivation, SendGradient, SendNorms, SendScalar, SendStop>;

struct Event {
  double time = 0;
  uint64_t order = 0;  // ties in order of creation
  enum Kind { kArrive, kLineFree, kComputed, kStop } kind = kArrive;
  uint32_t stage = 0;
  bool forward = false;
  bool operator>(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
};

// One direction of one boundary: frames wait, go over the line one after the other, and arrive in order.
struct Line {
  double serialisation = 0, delay = 0;
  std::deque<Message> waiting, travelling;
  bool busy = false;
  double last_arrival = 0;
};

// What a weights buffer holds.
struct Buffer {
  enum Kind { kFree, kWeights, kGradient } kind = kFree;
  uint64_t index = 0;  // version or step
  uint32_t added = 0;  // microbatches in a gradient sum
  uint64_t value = 0;  // hash of what went into it
};

uint64_t Mix(uint64_t a, uint64_t b) {
  const auto words = Philox4x32({static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                                 static_cast<uint32_t>(b >> 32)},
                                {1, 2});
  return words[0] | uint64_t{words[1]} << 32;
}

uint64_t InitialWeights(uint32_t stage) { return Mix(stage, 1); }
uint64_t AddGradient(uint64_t sum, uint64_t n, uint64_t weights) { return Mix(sum, Mix(n, weights)); }
uint64_t UpdatedWeights(uint64_t weights, uint64_t gradient, double clip) {
  return Mix(Mix(weights, gradient), static_cast<uint64_t>(clip * 1e15));
}

double NormOf(const SimCase& sim_case, uint64_t step, uint32_t stage) {
  if (sim_case.nan.count({step, stage}) != 0) return std::numeric_limits<double>::quiet_NaN();
  return 0.1 * static_cast<double>(step % 7 + 1) + 0.01 * stage;
}

// The sum and formula of clipping, written out once more; -1: skipped.
double ExpectedClip(const SimCase& sim_case, uint64_t step, uint32_t stage) {
  const StageCoreConfig& config = sim_case.stages[stage];
  const size_t p = sim_case.stages.size();
  double sum = 0;
  const bool alone = config.clip_scope == ClipScope::kStage;
  for (uint32_t i = alone ? stage : 0; i < (alone ? stage + 1 : p); ++i) sum += NormOf(sim_case, step, i);
  if (!std::isfinite(sum)) return -1;
  if (config.clip_scope == ClipScope::kNone) return 1;
  const double limit = alone ? config.clip_norm / std::sqrt(static_cast<double>(p)) : config.clip_norm;
  return std::min(1.0, limit / (std::sqrt(sum) + 1e-6));
}

struct Stage {
  explicit Stage(const StageCoreConfig& core_config) : config(core_config), core(core_config) {}
  StageCoreConfig config;
  StageCore core;
  std::vector<Buffer> buffers;
  std::optional<StageEffect> running;
  uint64_t forward_done = 0, backward_done = 0;               // sequences
  std::map<uint64_t, std::map<uint64_t, uint64_t>> captured;  // checkpoint step -> version -> hash
  std::vector<double> clips;
  std::vector<uint64_t> checkpoints;
  std::optional<uint64_t> finished;
};

class Simulation {
 public:
  explicit Simulation(const SimCase& sim_case) : case_(sim_case), rng_(sim_case.seed, RngPurpose::kTest, 77) {
    const size_t p = case_.stages.size();
    for (const StageCoreConfig& config : case_.stages) {
      Stage& stage = stages_.emplace_back(config);
      const uint64_t oldest = config.rule.VersionOf(config.first_step * config.rule.microbatches_per_step());
      stage.buffers.resize(config.rule.MaxLag() + 2);
      for (uint64_t v = oldest; v <= config.first_step; ++v) {
        const bool resumed = !case_.resumed_from.empty();
        const uint64_t value = resumed ? case_.resumed_from[config.stage].at(v) : InitialWeights(config.stage);
        stage.buffers[v - oldest] = {Buffer::kWeights, v, 0, value};
      }
      stage.forward_done = stage.backward_done = config.order.FirstSequenceAfter(config.first_step);
    }
    for (size_t boundary = 0; boundary + 1 < p; ++boundary) {
      for (int way = 0; way < 2; ++way) {
        Line& line = (way == 0 ? down_ : up_).emplace_back();
        line.serialisation = case_.serialisation[boundary];
        line.delay = case_.delay[boundary];
      }
    }
  }

  SimResult Run() {
    for (uint32_t i = 0; i < stages_.size(); ++i) Apply(i, stages_[i].core.Start());
    if (case_.stop_at) Push(*case_.stop_at, Event::kStop, 0, false);
    while (!events_.empty() && result_.error.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      Handle(event);
    }
    return Conclude();
  }

 private:
  uint64_t M(const Stage& stage) const { return stage.config.rule.microbatches_per_step(); }
  bool last(uint32_t i) const { return i + 1 == stages_.size(); }
  double Jittered(double seconds) { return seconds * (1 + case_.jitter * rng_.Word(draws_++) / 4294967296.0); }
  void Push(double time, Event::Kind kind, uint32_t stage, bool forward) {
    events_.push({time, order_++, kind, stage, forward});
  }
  void Fail(uint32_t stage, const std::string& what) {
    if (result_.error.empty()) result_.error = absl::StrCat("stage ", stage, " t=", now_, ": ", what);
  }
  void Require(bool holds, uint32_t stage, const std::string& what) {
    if (!holds) Fail(stage, what);
  }

  void Handle(const Event& event) {
    Stage& stage = stages_[event.stage];
    switch (event.kind) {
      case Event::kStop:
        return Apply(0, stages_[0].core.RequestStop());
      case Event::kLineFree: {
        Line& line = event.forward ? down_[event.stage] : up_[event.stage - 1];
        line.busy = false;
        StartLine(event.stage, event.forward);
        return UpdateBlocked(event.stage);
      }
      case Event::kArrive: {
        Line& line = event.forward ? down_[event.stage - 1] : up_[event.stage];
        Message message = std::move(line.travelling.front());
        line.travelling.pop_front();
        return Apply(event.stage, Deliver(stage.core, std::move(message)));
      }
      case Event::kComputed: {
        const StageEffect done = std::move(*stage.running);
        stage.running.reset();
        std::vector<double> norms;
        if (const auto* run = std::get_if<RunNorms>(&done)) norms = {NormOf(case_, run->step, event.stage)};
        if (const auto* update = std::get_if<RunUpdate>(&done)) FinishUpdate(event.stage, *update);
        return Apply(event.stage, stage.core.OnComputeDone(std::move(norms)));
      }
    }
  }

  static StageEffects Deliver(StageCore& core, Message message) {
    if (auto* m = std::get_if<SendActivation>(&message)) return core.OnInput(m->item);
    if (auto* m = std::get_if<SendGradient>(&message)) return core.OnGradient(m->item);
    if (auto* m = std::get_if<SendNorms>(&message)) return core.OnNorms(m->step, std::move(m->norms));
    if (auto* m = std::get_if<SendScalar>(&message)) return core.OnScalar(m->step, m->clip, m->square_sum, m->skip);
    return core.OnStop(std::get<SendStop>(message).end_step);
  }

  void Apply(uint32_t i, StageEffects effects) {
    if (!effects.ok()) return Fail(i, effects.status().ToString());
    for (StageEffect& effect : *effects) {
      Require(!stages_[i].finished.has_value(), i, "an effect after StageFinished");
      Perform(i, std::move(effect));
    }
    UpdateBlocked(i);
  }

  void Perform(uint32_t i, StageEffect effect) {
    if (auto* m = std::get_if<SendActivation>(&effect)) return Send(i, true, std::move(*m));
    if (auto* m = std::get_if<SendGradient>(&effect)) return Send(i, false, std::move(*m));
    if (auto* m = std::get_if<SendNorms>(&effect)) return Send(i, false, std::move(*m));
    if (auto* m = std::get_if<SendScalar>(&effect)) return Send(i, true, std::move(*m));
    if (auto* m = std::get_if<SendStop>(&effect)) return Send(i, true, *m);
    if (std::holds_alternative<ReleaseInput>(effect) || std::holds_alternative<ReportScalar>(effect) ||
        std::holds_alternative<ReportStopPoint>(effect)) {
      return;
    }
    if (const auto* m = std::get_if<StageFinished>(&effect)) {
      stages_[i].finished = m->steps_done;
      result_.seconds = now_;
      return;
    }
    StartCompute(i, std::move(effect));
  }

  void StartCompute(uint32_t i, StageEffect effect) {
    Stage& stage = stages_[i];
    Require(!stage.running.has_value(), i, "two computations at once");
    double seconds = 0;
    if (const auto* forward = std::get_if<RunForward>(&effect)) {
      CheckForward(i, forward->item, forward->weights_buffer);
      seconds = case_.forward[i];
    } else if (const auto* evaluation = std::get_if<RunEvaluation>(&effect)) {
      CheckForward(i, evaluation->item, evaluation->weights_buffer);
      Require(evaluation->item.is_evaluation, i, "an evaluation of a training item");
      stage.backward_done = evaluation->item.sequence + 1;
      seconds = case_.forward[i];
    } else if (const auto* both = std::get_if<RunForwardBackward>(&effect)) {
      CheckForward(i, both->item, both->weights_buffer);
      CheckBackward(i, both->item, both->weights_buffer, both->gradient_buffer, both->first);
      seconds = case_.forward[i] + case_.backward[i];
    } else if (const auto* backward = std::get_if<RunBackward>(&effect)) {
      CheckBackward(i, backward->item, backward->weights_buffer, backward->gradient_buffer, backward->first);
      seconds = case_.backward[i];
    } else if (const auto* norms = std::get_if<RunNorms>(&effect)) {
      CheckSum(i, norms->step, norms->gradient_buffer);
      seconds = case_.norms;
    } else if (const auto* update = std::get_if<RunUpdate>(&effect)) {
      CheckSum(i, update->step, update->gradient_buffer);
      CheckWeights(i, update->step, update->weights_buffer);
      seconds = case_.update;
    } else if (const auto* capture = std::get_if<RunCapture>(&effect)) {
      for (const auto& [version, buffer] : capture->version_and_buffer) {
        CheckWeights(i, version, buffer);
        stage.captured[capture->checkpoint_step][version] = stage.buffers[buffer].value;
      }
    } else {
      FinishCapture(i, std::get<RunFinishCapture>(effect).checkpoint_step);
    }
    stage.running = std::move(effect);
    Push(now_ + Jittered(seconds), Event::kComputed, i, false);
  }

  void CheckWeights(uint32_t i, uint64_t version, uint32_t buffer) {
    const Buffer& held = stages_[i].buffers[buffer];
    Require(held.kind == Buffer::kWeights && held.index == version, i,
            absl::StrCat("buffer ", buffer, " does not hold version ", version));
  }

  void CheckSum(uint32_t i, uint64_t step, uint32_t buffer) {
    const Buffer& held = stages_[i].buffers[buffer];
    Require(held.kind == Buffer::kGradient && held.index == step && held.added == M(stages_[i]), i,
            absl::StrCat("buffer ", buffer, " does not hold the whole gradient of step ", step));
  }

  void CheckForward(uint32_t i, const Item& item, uint32_t weights) {
    Stage& stage = stages_[i];
    Require(item.sequence == stage.forward_done, i, absl::StrCat("forward out of order: ", item.sequence));
    ++stage.forward_done;
    const uint64_t total = stage.config.total_steps;
    const bool final_evaluation = item.is_evaluation && item.n == total * M(stage);
    CheckWeights(i, final_evaluation ? total : stage.config.rule.VersionOf(item.n), weights);
    if (!last(i)) {
      Require(stage.core.next_forward() - stage.core.next_backward() <= stage.config.window, i, "window exceeded");
    }
    if (i == 0 && !item.is_evaluation) {
      const uint64_t lag = item.n / M(stage) - stage.config.rule.VersionOf(item.n);
      const uint64_t step = item.n / M(stage);
      if (result_.lags.size() <= step) result_.lags.resize(step + 1);
      ++result_.lags[step][lag];
    }
  }

  void CheckBackward(uint32_t i, const Item& item, uint32_t weights, uint32_t gradient, bool first) {
    Stage& stage = stages_[i];
    // Evaluation items in between come back without a computation.
    while (stage.backward_done < item.sequence && stage.config.order.At(stage.backward_done).is_evaluation) {
      ++stage.backward_done;
    }
    Require(item.sequence == stage.backward_done, i, absl::StrCat("backward out of order: ", item.sequence));
    stage.backward_done = item.sequence + 1;
    CheckWeights(i, stage.config.rule.VersionOf(item.n), weights);
    Buffer& sum = stage.buffers[gradient];
    if (first) {
      const bool dead = sum.kind == Buffer::kFree ||
                        (sum.kind == Buffer::kWeights && sum.index < stage.config.rule.VersionOf(item.n) &&
                         sum.index != stage.core.newest_version());
      Require(dead, i, absl::StrCat("buffer ", gradient, " is overwritten while it is needed"));
      sum = {Buffer::kGradient, item.n / M(stage), 0, 0};
    }
    Require(sum.kind == Buffer::kGradient && sum.index == item.n / M(stage) && sum.added == item.n % M(stage), i,
            absl::StrCat("gradient of microbatch ", item.n, " goes into the wrong sum"));
    ++sum.added;
    sum.value = AddGradient(sum.value, item.n, stage.buffers[weights].value);
  }

  void FinishUpdate(uint32_t i, const RunUpdate& update) {
    Stage& stage = stages_[i];
    const double clip = update.skip ? -1 : update.clip;
    Require(clip == ExpectedClip(case_, update.step, i), i, absl::StrCat("clip of step ", update.step, " is ", clip));
    stage.clips.push_back(clip);
    const uint64_t old = stage.buffers[update.weights_buffer].value;
    Buffer& updated = stage.buffers[update.gradient_buffer];
    updated = {Buffer::kWeights, update.step + 1, 0,
               update.skip ? old : UpdatedWeights(old, updated.value, update.clip)};
    for (const uint64_t step : update.capture_for) stage.captured[step][update.step + 1] = updated.value;
  }

  void FinishCapture(uint32_t i, uint64_t step) {
    Stage& stage = stages_[i];
    Require(stage.core.newest_version() == step, i, absl::StrCat("checkpoint ", step, " taken at another version"));
    std::set<uint64_t> expected, captured;
    for (uint64_t v = stage.config.rule.VersionOf(step * M(stage)); v <= step; ++v) expected.insert(v);
    for (const auto& [version, value] : stage.captured[step]) captured.insert(version);
    Require(captured == expected, i, absl::StrCat("checkpoint ", step, " lacks a version or has one too many"));
    stage.checkpoints.push_back(step);
  }

  void Send(uint32_t i, bool forward, Message message) {
    Require(forward ? !last(i) : i > 0, i, "a frame over the end of the pipeline");
    (forward ? down_[i] : up_[i - 1]).waiting.push_back(std::move(message));
    StartLine(i, forward);
  }

  void StartLine(uint32_t i, bool forward) {
    Line& line = forward ? down_[i] : up_[i - 1];
    if (line.busy || line.waiting.empty()) return;
    const bool tensor = std::holds_alternative<SendActivation>(line.waiting.front()) ||
                        std::holds_alternative<SendGradient>(line.waiting.front());
    line.travelling.push_back(std::move(line.waiting.front()));
    line.waiting.pop_front();
    line.busy = true;
    const double free_at = now_ + (tensor ? Jittered(line.serialisation) : 0);
    line.last_arrival = std::max(line.last_arrival, free_at + Jittered(line.delay));
    Push(free_at, Event::kLineFree, i, forward);
    Push(line.last_arrival, Event::kArrive, forward ? i + 1 : i - 1, forward);
  }

  void UpdateBlocked(uint32_t i) {
    const bool forward = !last(i) && down_[i].waiting.size() > case_.send_queue_limit;
    const bool backward = i > 0 && up_[i - 1].waiting.size() > case_.send_queue_limit;
    auto& known = blocked_[i];
    if (known == std::pair(forward, backward)) return;
    known = {forward, backward};
    Apply(i, stages_[i].core.OnSendBlocked(forward, backward));
  }

  SimResult Conclude() {
    result_.clips = stages_[0].clips;
    result_.checkpoints = stages_[0].checkpoints;
    for (const uint64_t step : result_.checkpoints) {
      for (Stage& stage : stages_) result_.checkpoint_weights[step].push_back(stage.captured[step]);
    }
    for (uint32_t i = 0; i < stages_.size() && result_.error.empty(); ++i) {
      const Stage& stage = stages_[i];
      if (!stage.finished) {
        Fail(i, absl::StrCat("stuck: next forward ", stage.core.next_forward(), " next backward ",
                             stage.core.next_backward(), " version ", stage.core.newest_version(), " waits ",
                             static_cast<int>(stage.core.wait_reason())));
        break;
      }
      result_.steps_done = *stage.finished;
      Require(stage.finished == stages_[0].finished, i, "stages ended at different steps");
      Require(stage.checkpoints == stages_[0].checkpoints, i, "stages took different checkpoints");
      Require(stage.forward_done == stage.config.order.EndSequence(*stage.finished), i, "forwards are missing");
      Require(stage.core.newest_version() == *stage.finished, i, "updates are missing");
    }
    double period = 0;
    for (uint32_t i = 0; i < stages_.size(); ++i) {
      period = std::max(period, case_.forward[i] + case_.backward[i]);
      if (!last(i)) period = std::max(period, case_.serialisation[i]);
    }
    const StageCoreConfig& first = case_.stages[0];
    result_.ideal = period * static_cast<double>(M(stages_[0]) * (result_.steps_done - first.first_step));
    return result_;
  }

  const SimCase& case_;
  CounterRng rng_;
  uint64_t draws_ = 0, order_ = 0;
  double now_ = 0;
  std::deque<Stage> stages_;
  std::deque<Line> down_, up_;  // of boundary i (between stages i and i+1)
  std::map<uint32_t, std::pair<bool, bool>> blocked_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  SimResult result_;
};

}  // namespace

SimResult RunSim(const SimCase& sim_case) { return Simulation(sim_case).Run(); }

SimWeights SequentialWeights(const SimCase& sim_case, const std::vector<std::vector<JTableEntry>>& tables,
                             uint64_t steps) {
  SimWeights result(sim_case.stages.size());
  for (uint32_t stage = 0; stage < result.size(); ++stage) {
    std::map<uint64_t, uint64_t>& weights = result[stage];
    weights[0] = InitialWeights(stage);
    const uint64_t m = sim_case.stages[stage].rule.microbatches_per_step();
    uint64_t version = 0;
    for (uint64_t step = 0; step < steps; ++step) {
      uint64_t j = 0, sum = 0;
      for (const JTableEntry& entry : tables[stage]) j = entry.from_step <= step ? entry.j : j;
      for (uint64_t n = step * m; n < (step + 1) * m; ++n) {
        if (n >= j) version = std::max(version, (n - j) / m);
        sum = AddGradient(sum, n, weights.at(version));
      }
      const double clip = ExpectedClip(sim_case, step, stage);
      weights[step + 1] = clip < 0 ? weights[step] : UpdatedWeights(weights[step], sum, clip);
    }
  }
  return result;
}

}  // namespace stagecoach
