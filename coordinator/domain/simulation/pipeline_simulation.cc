#include "coordinator/domain/simulation/pipeline_simulation.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "common/counter_rng.h"
#include "common/schedule_rules.h"

namespace stagecoach {
namespace {

// Norms and the scalar: a header and a few numbers. They follow frames on the same streams.
constexpr double kControlBytes = 128;

double SecondsOf(double bytes, double bytes_per_second) { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }

// A resource that is used by one frame at a time, and how long it was busy in the measured part.
struct Lane {
  double bytes_per_second = 0;
  double free_at = 0;
  double busy = 0;

  // Returns when it begins.
  double Take(double now, double bytes) {
    const double begin = std::max(now, free_at), seconds = SecondsOf(bytes, bytes_per_second);
    free_at = begin + seconds;
    busy += seconds;
    return begin;
  }
};

enum class Message : uint8_t { kActivation, kGradient, kNorms, kScalar };

struct Event {
  enum Kind : uint8_t { kComputed, kHead, kArrived } kind = kComputed;
  double time = 0;
  uint64_t order = 0;  // ties in order of creation
  uint32_t stage = 0;
  Message message = Message::kActivation;
  double tail = 0;  // kHead: when uplink and link are through
  bool operator>(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
};

// One direction of one link.
struct Direction {
  Lane link;
  double delay = 0, last_head = 0, last_arrival = 0;
};

enum class Work : uint8_t { kNone, kForward, kBackward, kBoth, kUpdate };

struct Stage {
  Work running = Work::kNone;
  bool last_was_forward = false;
  uint64_t forward = 0, backward = 0;      // microbatches started, done
  uint64_t inputs = 0, gradients = 0;      // arrived
  uint64_t version = 0;                    // newest
  uint64_t norms_below = 0, scalars = 0;   // steps of which they have arrived
  uint64_t own_steps = 0, norms_sent = 0;  // steps whose backward is done, whose norms went up
  Lane up, down;
  double busy_since = 0, idle_since = 0;
  SimulatedWait wait = SimulatedWait::kInput;
  StageUse use;
};

class Simulation {
 public:
  explicit Simulation(const PipelineCase& pipeline)
      : case_(pipeline),
        rule_(pipeline.microbatches_per_step, {{0, pipeline.j}}),
        rng_(pipeline.seed, RngPurpose::kJitter, 0),
        stages_(pipeline.stages.size()) {
    const uint64_t m = case_.microbatches_per_step;
    // Steps behind the measured ones, so that the pipeline is full to the end.
    uint32_t window = 1;
    for (size_t i = 0; i < stages_.size(); ++i) {
      stages_[i].up.bytes_per_second = case_.stages[i].up_bytes_per_second;
      stages_[i].down.bytes_per_second = case_.stages[i].down_bytes_per_second;
      window = std::max(window, case_.stages[i].window);
    }
    measured_from_ = case_.warmup_steps * m;
    measured_to_ = measured_from_ + case_.steps * m;
    end_ = measured_to_ + (window / m + 1) * m;
    for (const SimulatedLink& link : case_.links) {
      ways_.push_back({{link.forward_bytes_per_second}, link.delay_seconds});
      ways_.push_back({{link.backward_bytes_per_second}, link.delay_seconds});
    }
  }

  PipelineOutcome Run() {
    if (measured_from_ == 0) BeginMeasuring();
    for (uint32_t i = 0; i < stages_.size(); ++i) Decide(i);
    while (!events_.empty() && stages_[0].backward < measured_to_) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      Handle(event);
    }
    return Outcome();
  }

 private:
  bool IsLast(uint32_t i) const { return i + 1 == stages_.size(); }
  Direction& Way(uint32_t link, bool forward) { return ways_[2 * link + (forward ? 0 : 1)]; }

  void Push(Event::Kind kind, double time, uint32_t stage, Message message = Message::kActivation, double tail = 0) {
    events_.push({kind, time, next_order_++, stage, message, tail});
  }

  static bool Downwards(Message message) { return message == Message::kActivation || message == Message::kScalar; }

  // From stage i to its neighbour.
  void Send(uint32_t i, Message message) {
    const bool forward = Downwards(message);
    const uint32_t link = forward ? i : i - 1;
    const bool frame = message == Message::kActivation || message == Message::kGradient;
    const double bytes = frame ? case_.frame_bytes : kControlBytes;
    Direction& way = Way(link, forward);
    const double begin = stages_[i].up.Take(now_, bytes);
    const double on_link = way.link.Take(begin, bytes);
    const double jitter = case_.links[link].jitter_seconds;
    const double uniform = jitter > 0 ? rng_.Word(next_random_++) / 2147483648.0 - 1 : 0;
    const double delay = std::max(0.0, way.delay + jitter * uniform);
    way.last_head = std::max(way.last_head, on_link + delay);
    const double sent = std::max(stages_[i].up.free_at, way.link.free_at) - on_link;
    Push(Event::kHead, way.last_head, forward ? i + 1 : i - 1, message, way.last_head + sent);
  }

  void Handle(const Event& event) {
    Stage& stage = stages_[event.stage];
    if (event.kind == Event::kHead) {
      const bool frame = event.message == Message::kActivation || event.message == Message::kGradient;
      stage.down.Take(now_, frame ? case_.frame_bytes : kControlBytes);
      Direction& way = Way(Downwards(event.message) ? event.stage - 1 : event.stage, Downwards(event.message));
      way.last_arrival = std::max({way.last_arrival, event.tail, stage.down.free_at});
      return Push(Event::kArrived, way.last_arrival, event.stage, event.message);
    }
    if (event.kind == Event::kArrived) {
      Arrived(event.stage, event.message);
    } else {
      Computed(event.stage);
    }
    Decide(event.stage);
  }

  void Arrived(uint32_t i, Message message) {
    Stage& stage = stages_[i];
    switch (message) {
      case Message::kActivation:
        ++stage.inputs;
        break;
      case Message::kGradient:
        ++stage.gradients;
        break;
      case Message::kNorms:
        ++stage.norms_below;
        CombineNorms(i);
        break;
      case Message::kScalar:
        ++stage.scalars;
        if (!IsLast(i)) Send(i, Message::kScalar);
        break;
    }
  }

  void Computed(uint32_t i) {
    Stage& stage = stages_[i];
    const Work work = std::exchange(stage.running, Work::kNone);
    if (measuring_) stage.use.compute += now_ - stage.busy_since;
    stage.idle_since = now_;
    if (work == Work::kUpdate) {
      ++stage.version;
      return;
    }
    stage.last_was_forward = work == Work::kForward;
    if (work == Work::kForward) return Send(i, Message::kActivation);
    ++stage.backward;
    if (i > 0) Send(i, Message::kGradient);
    if (i == 0 && stage.backward == measured_from_) BeginMeasuring();
    if (stage.backward % case_.microbatches_per_step != 0) return;
    ++stage.own_steps;
    CombineNorms(i);
  }

  // Own sums and those of all below: up, or at stage 0 the scalar.
  void CombineNorms(uint32_t i) {
    Stage& stage = stages_[i];
    if (!case_.global_clip) {
      stage.scalars = stage.own_steps;
      return;
    }
    while (stage.norms_sent < stage.own_steps && (IsLast(i) || stage.norms_sent < stage.norms_below)) {
      ++stage.norms_sent;
      if (i > 0) {
        Send(i, Message::kNorms);
        continue;
      }
      ++stage.scalars;
      if (!IsLast(i)) Send(i, Message::kScalar);
    }
  }

  bool CanForward(uint32_t i, SimulatedWait* why_not) const {
    const Stage& stage = stages_[i];
    if (stage.forward >= end_) {
      *why_not = SimulatedWait::kGradient;
    } else if (i > 0 && stage.inputs <= stage.forward) {
      *why_not = SimulatedWait::kInput;
    } else if (rule_.VersionOf(stage.forward) > stage.version) {
      *why_not = SimulatedWait::kVersion;
    } else if (!IsLast(i) && stage.forward - stage.backward >= case_.stages[i].window) {
      *why_not = SimulatedWait::kCredit;
    } else {
      return true;
    }
    return false;
  }

  void Decide(uint32_t i) {
    Stage& stage = stages_[i];
    if (stage.running != Work::kNone) return;
    AddWaiting(&stage);
    const SimulatedStage& cost = case_.stages[i];
    SimulatedWait why_not = SimulatedWait::kInput;
    const bool can_forward = CanForward(i, &why_not);
    const bool can_backward = !IsLast(i) && stage.gradients > stage.backward;
    if (stage.scalars > stage.version && stage.own_steps > stage.version) {
      Start(i, Work::kUpdate, cost.update_seconds);
    } else if (can_backward && (stage.last_was_forward || !can_forward)) {
      Start(i, Work::kBackward, cost.backward_seconds);
    } else if (can_forward && IsLast(i)) {
      ++stage.forward;
      Start(i, Work::kBoth, cost.forward_seconds + cost.backward_seconds);
    } else if (can_forward) {
      ++stage.forward;
      stage.use.most_in_flight =
          std::max(stage.use.most_in_flight, static_cast<uint32_t>(stage.forward - stage.backward));
      Start(i, Work::kForward, cost.forward_seconds);
    } else {
      stage.wait = why_not;
    }
  }

  void Start(uint32_t i, Work work, double seconds) {
    stages_[i].running = work;
    stages_[i].busy_since = now_;
    Push(Event::kComputed, now_ + seconds, i);
  }

  // Up to now, of an idle lane.
  void AddWaiting(Stage* stage) {
    if (measuring_) stage->use.waiting[static_cast<size_t>(stage->wait)] += now_ - stage->idle_since;
    stage->idle_since = now_;
  }

  void BeginMeasuring() {
    measuring_ = true;
    begin_ = now_;
    for (Stage& stage : stages_) {
      stage.busy_since = stage.idle_since = now_;
      stage.up.busy = stage.down.busy = 0;
    }
  }

  PipelineOutcome Outcome() {
    PipelineOutcome outcome;
    outcome.seconds = now_ - begin_;
    for (Stage& stage : stages_) {
      if (stage.running == Work::kNone) {
        AddWaiting(&stage);
      } else {
        stage.use.compute += now_ - stage.busy_since;
      }
      stage.use.up = stage.up.busy;
      stage.use.down = stage.down.busy;
      if (outcome.seconds > 0) {
        for (double* share : {&stage.use.compute, &stage.use.up, &stage.use.down}) {
          *share = std::min(1.0, *share / outcome.seconds);
        }
        for (double& share : stage.use.waiting) share /= outcome.seconds;
      }
      outcome.stages.push_back(stage.use);
    }
    const auto measured = static_cast<double>(measured_to_ - measured_from_);
    outcome.microbatches_per_second = outcome.seconds > 0 ? measured / outcome.seconds : 0;
    return outcome;
  }

  const PipelineCase& case_;
  const VersionRule rule_;
  const CounterRng rng_;
  std::vector<Stage> stages_;
  std::vector<Direction> ways_;  // forward and backward of each link
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t measured_from_ = 0, measured_to_ = 0, end_ = 0;  // microbatches
  uint64_t next_order_ = 0, next_random_ = 0;
  double now_ = 0, begin_ = 0;
  bool measuring_ = false;
};

}  // namespace

const char* SimulatedWaitName(SimulatedWait wait) {
  constexpr const char* kNames[kNumSimulatedWaits] = {"input", "gradient", "credit", "version"};
  return kNames[static_cast<size_t>(wait)];
}

PipelineOutcome SimulatePipeline(const PipelineCase& pipeline) { return Simulation(pipeline).Run(); }

}  // namespace stagecoach
