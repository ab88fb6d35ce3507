#include "worker/compute/fake_stage_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/compute/checkpoint_units.h"
#include "worker/compute/fake_arithmetic.h"

namespace stagecoach {
namespace {

constexpr size_t kNumberBytes = 64;  // of a payload that carry the number, eight times in different disguise

void Spend(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void FillPayload(uint64_t number, absl::Span<uint8_t> out) {
  std::fill(out.begin(), out.end(), uint8_t{0});
  for (size_t i = 0; i * 8 < std::min(kNumberBytes, out.size()); ++i) {
    const uint64_t word = i == 0 ? number : fake::Mix(number, i);
    std::memcpy(out.data() + i * 8, &word, std::min<size_t>(8, out.size() - i * 8));
  }
}

std::string NumberBytes(uint64_t number) { return std::string(reinterpret_cast<const char*>(&number), sizeof(number)); }

constexpr char kWeights[] = "state";
constexpr char kMoment[] = "m.state";

}  // namespace

std::unique_ptr<StageExecutor> CreateFakeExecutor(const ExecutorOptions& options, const FakeCosts& costs) {
  return std::make_unique<FakeStageExecutor>(options, costs);
}

FakeStageExecutor::FakeStageExecutor(ExecutorOptions options, const FakeCosts& costs)
    : options_(std::move(options)),
      costs_(costs),
      first_unit_(options_.config.first_unit(options_.stage)),
      num_units_(options_.config.end_unit(options_.stage) - first_unit_),
      buffers_(options_.config.RuleOfStage(options_.stage).MaxLag() + 2, Numbers(num_units_)),
      moments_(num_units_) {
  status_ = Load();
}

absl::Status FakeStageExecutor::Load() {
  if (options_.checkpoint_dir.empty()) {
    if (options_.first_step != 0) return absl::InvalidArgumentError("first_step needs a checkpoint folder");
    for (uint32_t u = 0; u < num_units_; ++u) {
      buffers_[0][u] = fake::InitialWeights(options_.config.seed, first_unit_ + u);
    }
    return absl::OkStatus();
  }
  const VersionRule rule = options_.config.RuleOfStage(options_.stage);
  const uint64_t oldest = rule.VersionOf(options_.first_step * options_.config.microbatches);
  for (uint32_t u = 0; u < num_units_; ++u) RETURN_IF_ERROR(LoadUnit(u, oldest));
  return absl::OkStatus();
}

absl::Status FakeStageExecutor::LoadUnit(uint32_t index, uint64_t oldest_version) {
  const uint32_t unit = first_unit_ + index;
  const std::string name = absl::StrCat(options_.checkpoint_dir, " unit ", unit);
  ASSIGN_OR_RETURN(const SafetensorsReader file,
                   OpenCheckpointUnit(options_.checkpoint_dir, unit, options_.first_step));
  for (uint64_t version = oldest_version; version <= options_.first_step; ++version) {
    const std::string tensor = WeightName(options_.first_step - version, kWeights);
    ASSIGN_OR_RETURN(const absl::string_view bytes, CheckpointBytes(file, name, tensor, sizeof(uint64_t)));
    std::memcpy(&buffers_[version - oldest_version][index], bytes.data(), sizeof(uint64_t));
  }
  ASSIGN_OR_RETURN(const absl::string_view moment, CheckpointBytes(file, name, kMoment, sizeof(uint64_t)));
  std::memcpy(&moments_[index], moment.data(), sizeof(uint64_t));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FakeStageExecutor::ReadPayload(const Payload& payload, uint32_t cut_index) {
  const RunConfig& config = options_.config;
  const size_t expected =
      EncodedBytes(config.codecs[cut_index], config.sequences * config.tokens, config.model.boundary_columns());
  if (payload.bytes == nullptr || payload.bytes->size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("payload at cut ", config.cuts[cut_index], " has ",
                                                   payload.bytes ? payload.bytes->size() : 0, " bytes, expected ",
                                                   expected));
  }
  if (payload.nonfinite) return 0;
  const absl::Span<const uint8_t> bytes = payload.bytes->bytes();
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), std::min<size_t>(sizeof(number), bytes.size()));
  std::vector<uint8_t> correct(bytes.size());
  FillPayload(number, absl::MakeSpan(correct));
  if (std::memcmp(correct.data(), bytes.data(), bytes.size()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("payload at cut ", config.cuts[cut_index], " is damaged"));
  }
  return number;
}

absl::StatusOr<Payload> FakeStageExecutor::MakePayload(uint64_t number, uint32_t cut_index, bool nonfinite) {
  const RunConfig& config = options_.config;
  const size_t size =
      EncodedBytes(config.codecs[cut_index], config.sequences * config.tokens, config.model.boundary_columns());
  ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> buffer, options_.pool->Allocate(size));
  if (nonfinite) {
    std::memset(buffer->bytes().data(), 0, size);
  } else {
    FillPayload(number, buffer->bytes());
  }
  return Payload{std::move(buffer), nonfinite};
}

absl::StatusOr<uint64_t> FakeStageExecutor::Enter(const Item& item, const Payload& input) {
  RETURN_IF_ERROR(status_);
  if (options_.stage == 0) {
    Item read = item;
    if (!item.is_evaluation) read.n = options_.config.GlobalMicrobatch(item.n);
    return fake::Tokens(options_.config.seed, read);
  }
  return ReadPayload(input, options_.stage - 1);
}

FakeStageExecutor::Numbers FakeStageExecutor::RunUnits(uint64_t activation, const Numbers& weights) const {
  Numbers activations{activation};
  for (uint32_t u = 0; u < num_units_; ++u) activations.push_back(fake::UnitForward(activations.back(), weights[u]));
  return activations;
}

uint64_t FakeStageExecutor::RunUnitsBackward(const Numbers& activations, const Numbers& weights, uint64_t gradient,
                                             bool first, Numbers* sums) const {
  for (uint32_t u = num_units_; u-- > 0;) {
    if (first) (*sums)[u] = 0;
    (*sums)[u] = fake::Accumulate((*sums)[u], fake::UnitGradient(activations[u], weights[u], gradient));
    gradient = fake::UnitBackward(activations[u], weights[u], gradient);
  }
  return gradient;
}

absl::StatusOr<Payload> FakeStageExecutor::Forward(const Item& item, uint32_t weights_buffer, const Payload& input) {
  ASSIGN_OR_RETURN(const uint64_t entering, Enter(item, input));
  Spend(costs_.forward_seconds);
  Numbers activations = RunUnits(entering, buffers_[weights_buffer]);
  const uint64_t leaving = activations.back();
  if (!item.is_evaluation) {
    if (stash_.size() >= options_.window) {
      return absl::InternalError(absl::StrCat("microbatch ", item.n, " exceeds the window of ", options_.window));
    }
    stash_[item.sequence] = {std::move(activations), input.nonfinite};
    if (input.nonfinite) nonfinite_steps_.insert(item.n / options_.config.microbatches);
  }
  return MakePayload(leaving, options_.stage, input.nonfinite);
}

absl::StatusOr<Payload> FakeStageExecutor::Backward(const Item& item, uint32_t weights_buffer, uint32_t gradient_buffer,
                                                    bool first, const Payload& gradient) {
  RETURN_IF_ERROR(status_);
  ASSIGN_OR_RETURN(uint64_t number, ReadPayload(gradient, options_.stage));
  const auto stashed = stash_.find(item.sequence);
  if (stashed == stash_.end() || stashed != stash_.begin()) {
    return absl::InternalError(absl::StrCat("backward of microbatch ", item.n, " is out of order"));
  }
  Spend(costs_.backward_seconds);
  const bool nonfinite = gradient.nonfinite || stashed->second.nonfinite;
  if (nonfinite) nonfinite_steps_.insert(item.n / options_.config.microbatches);
  // The activations come from the weights as they are now: a version that changed since the forward shows.
  const Numbers activations = RunUnits(stashed->second.activations.front(), buffers_[weights_buffer]);
  if (activations != stashed->second.activations) {
    return absl::InternalError(absl::StrCat("the weights of microbatch ", item.n, " changed before its backward"));
  }
  stash_.erase(stashed);
  number = RunUnitsBackward(activations, buffers_[weights_buffer], number, first, &buffers_[gradient_buffer]);
  if (options_.stage == 0) return Payload{};
  return MakePayload(number, options_.stage - 1, nonfinite);
}

absl::StatusOr<LastStageResult> FakeStageExecutor::ForwardBackward(const Item& item, uint32_t weights_buffer,
                                                                   uint32_t gradient_buffer, bool first,
                                                                   const Payload& input) {
  ASSIGN_OR_RETURN(const uint64_t entering, Enter(item, input));
  Spend(costs_.forward_seconds + costs_.backward_seconds);
  if (input.nonfinite) nonfinite_steps_.insert(item.n / options_.config.microbatches);
  const Numbers activations = RunUnits(entering, buffers_[weights_buffer]);
  LastStageResult result;
  result.loss = input.nonfinite ? std::numeric_limits<double>::quiet_NaN() : fake::Loss(activations.back());
  const uint64_t gradient =
      RunUnitsBackward(activations, buffers_[weights_buffer], fake::LossGradient(activations.back(), item), first,
                       &buffers_[gradient_buffer]);
  if (options_.stage > 0) {
    ASSIGN_OR_RETURN(result.gradient, MakePayload(gradient, options_.stage - 1, input.nonfinite));
  }
  return result;
}

absl::StatusOr<double> FakeStageExecutor::Evaluate(const Item& item, uint32_t weights_buffer, const Payload& input) {
  ASSIGN_OR_RETURN(const uint64_t entering, Enter(item, input));
  Spend(costs_.forward_seconds);
  const double tokens = static_cast<double>(options_.config.sequences) * options_.config.tokens;
  return fake::Loss(RunUnits(entering, buffers_[weights_buffer]).back()) * tokens;
}

absl::StatusOr<std::vector<double>> FakeStageExecutor::GradientNorms(uint64_t step, uint32_t gradient_buffer) {
  RETURN_IF_ERROR(status_);
  std::vector<double> norms;
  for (const uint64_t sum : buffers_[gradient_buffer]) norms.push_back(fake::SquareNorm(sum));
  if (nonfinite_steps_.erase(step) > 0) norms[0] = std::numeric_limits<double>::quiet_NaN();
  return norms;
}

absl::Status FakeStageExecutor::Update(const UpdateRequest& request) {
  RETURN_IF_ERROR(status_);
  Spend(costs_.update_seconds);
  const Numbers& weights = buffers_[request.weights_buffer];
  Numbers& sums = buffers_[request.gradient_buffer];
  if (request.skip) {
    sums = weights;
    return absl::OkStatus();
  }
  for (uint32_t u = 0; u < num_units_; ++u) {
    moments_[u] = fake::Moment(moments_[u], sums[u], request.clip);
    sums[u] = fake::UpdatedWeights(weights[u], moments_[u], request.step);
  }
  ++applied_;
  return absl::OkStatus();
}

absl::Status FakeStageExecutor::CaptureWeights(uint64_t checkpoint_step, uint64_t version, uint32_t buffer) {
  RETURN_IF_ERROR(status_);
  captured_[checkpoint_step][version] = buffers_[buffer];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CheckpointUnit>> FakeStageExecutor::FinishCapture(uint64_t checkpoint_step) {
  RETURN_IF_ERROR(status_);
  const auto captured = captured_.find(checkpoint_step);
  if (captured == captured_.end() || captured->second.rbegin()->first != checkpoint_step) {
    return absl::InternalError(absl::StrCat("checkpoint ", checkpoint_step, " lacks the version of its own step"));
  }
  std::vector<CheckpointUnit> units;
  for (uint32_t u = 0; u < num_units_; ++u) {
    CheckpointUnit unit;
    unit.unit = first_unit_ + u;
    for (auto version = captured->second.rbegin(); version != captured->second.rend(); ++version) {
      unit.tensors.push_back(
          {WeightName(checkpoint_step - version->first, kWeights), {2}, NumberBytes(version->second[u])});
    }
    unit.tensors.push_back({kMoment, {2}, NumberBytes(moments_[u])});
    unit.metadata = {{"step", absl::StrCat(checkpoint_step)}, {"applied_updates", absl::StrCat(applied_)}};
    unit.weights_sha256 = WeightsSha256(unit);
    units.push_back(std::move(unit));
  }
  captured_.erase(captured);
  return units;
}

std::vector<uint64_t> FakeStageExecutor::unit_parameters() const {
  return std::vector<uint64_t>(num_units_, fake::kAveragedParts);
}

absl::StatusOr<std::vector<float>> FakeStageExecutor::ReadWeights(uint32_t buffer) {
  RETURN_IF_ERROR(status_);
  std::vector<float> weights;
  for (const uint64_t number : buffers_[buffer]) {
    for (uint32_t part = 0; part < fake::kAveragedParts; ++part) weights.push_back(fake::AveragedPart(number, part));
  }
  return weights;
}

absl::Status FakeStageExecutor::WriteWeights(uint32_t buffer, absl::Span<const float> weights) {
  if (weights.size() != size_t{num_units_} * fake::kAveragedParts) {
    return absl::InternalError(absl::StrCat("a round gave ", weights.size(), " weights for ", num_units_, " units"));
  }
  for (uint32_t u = 0; u < num_units_; ++u) {
    uint64_t number = 0;
    for (uint32_t part = 0; part < fake::kAveragedParts; ++part) {
      number |= fake::NumberOfPart(weights[u * fake::kAveragedParts + part], part);
    }
    buffers_[buffer][u] = number;
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
