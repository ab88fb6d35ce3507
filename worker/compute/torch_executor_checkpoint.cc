// Checkpoints of the torch executor: copying versions out, handing the units over, loading them again.
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "worker/compute/checkpoint_units.h"
#include "worker/compute/torch_errors.h"
#include "worker/compute/torch_stage_executor.h"

namespace stagecoach {
namespace {

constexpr char kAppliedUpdates[] = "applied_updates";
constexpr char kNAdamProduct[] = "nadam_product";

CheckpointTensor HostTensor(std::string name, const std::vector<int64_t>& shape, const at::Tensor& values) {
  const at::Tensor host = values.detach().cpu().contiguous();
  return {std::move(name), shape,
          std::string(static_cast<const char*>(host.const_data_ptr()), static_cast<size_t>(host.nbytes()))};
}

}  // namespace

absl::Status TorchStageExecutor::CaptureWeights(uint64_t checkpoint_step, uint64_t version, uint32_t buffer) {
  return CatchTorch(absl::StrCat("checkpoint of step ", checkpoint_step), [&]() -> absl::Status {
    captured_[checkpoint_step][version] = BufferOnHost(buffer);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<CheckpointUnit>> TorchStageExecutor::FinishCapture(uint64_t checkpoint_step) {
  using Units = absl::StatusOr<std::vector<CheckpointUnit>>;
  return CatchTorch(absl::StrCat("checkpoint of step ", checkpoint_step), [&]() -> Units {
    const auto captured = captured_.find(checkpoint_step);
    if (captured == captured_.end() || captured->second.rbegin()->first != checkpoint_step) {
      return absl::InternalError(absl::StrCat("checkpoint ", checkpoint_step, " lacks the version of its own step"));
    }
    const std::vector<ParameterInfo>& parameters = model_.parameters();
    std::vector<CheckpointUnit> units;
    for (size_t first = 0; first < parameters.size();) {
      size_t end = first;
      while (end < parameters.size() && parameters[end].unit == parameters[first].unit) ++end;
      CheckpointUnit unit;
      unit.unit = parameters[first].unit;
      for (auto version = captured->second.rbegin(); version != captured->second.rend(); ++version) {
        for (size_t q = first; q < end; ++q) {
          const at::Tensor values = version->second.narrow(0, parameters[q].offset, parameters[q].numel);
          unit.tensors.push_back(HostTensor(WeightName(checkpoint_step - version->first, parameters[q].name),
                                            parameters[q].shape, values));
        }
      }
      for (size_t q = first; q < end; ++q) {
        for (const auto& [kind, values] : optimizer_.StateOf(q)) {
          unit.tensors.push_back(HostTensor(absl::StrCat(kind, ".", parameters[q].name), parameters[q].shape, values));
        }
      }
      unit.metadata = {{"step", absl::StrCat(checkpoint_step)},
                       {kAppliedUpdates, absl::StrCat(optimizer_.applied_updates())},
                       {kNAdamProduct, absl::StrFormat("%a", optimizer_.nadam_product())}};
      unit.weights_sha256 = WeightsSha256(unit);
      units.push_back(std::move(unit));
      first = end;
    }
    captured_.erase(captured);
    return units;
  });
}

absl::Status TorchStageExecutor::LoadWeights() {
  const uint64_t oldest = rule_.VersionOf(options_.first_step * options_.config.microbatches);
  const std::vector<ParameterInfo>& parameters = model_.parameters();
  std::vector<at::Tensor> host(options_.first_step - oldest + 1);
  for (at::Tensor& flat : host) flat = at::zeros({model_.flat_size()}, at::kFloat);
  std::optional<SafetensorsReader> file;
  uint64_t applied = 0;
  double product = 1;
  for (size_t q = 0; q < parameters.size(); ++q) {
    const uint32_t unit = parameters[q].unit;
    if (q == 0 || parameters[q - 1].unit != unit) {
      ASSIGN_OR_RETURN(file, OpenCheckpointUnit(options_.checkpoint_dir, unit, options_.first_step));
      const uint64_t before = applied;
      RETURN_IF_ERROR(ReadCounts(*file, unit, &applied, &product));
      if (q > 0 && applied != before) {
        return absl::InvalidArgumentError(absl::StrCat(options_.checkpoint_dir, ": unit ", unit, " has ", applied,
                                                       " applied updates, the unit before it ", before,
                                                       "; the files are of different checkpoints"));
      }
    }
    RETURN_IF_ERROR(LoadParameter(q, *file, &host));
  }
  for (size_t b = 0; b < host.size(); ++b) buffers_[b].flat.copy_(host[b]);
  optimizer_.SetApplied(applied, product);
  return absl::OkStatus();
}

absl::Status TorchStageExecutor::ReadCounts(const SafetensorsReader& file, uint32_t unit, uint64_t* applied,
                                            double* nadam_product) const {
  const auto count = file.metadata().find(kAppliedUpdates);
  const auto product = file.metadata().find(kNAdamProduct);
  if (count == file.metadata().end() || product == file.metadata().end() || !absl::SimpleAtoi(count->second, applied)) {
    return absl::InvalidArgumentError(absl::StrCat(options_.checkpoint_dir, ": unit ", unit, " lacks ", kAppliedUpdates,
                                                   " or ", kNAdamProduct, " in its metadata"));
  }
  *nadam_product = std::strtod(product->second.c_str(), nullptr);
  return absl::OkStatus();
}

absl::Status TorchStageExecutor::LoadParameter(size_t parameter, const SafetensorsReader& file,
                                               std::vector<at::Tensor>* host_weights) {
  const ParameterInfo& info = model_.parameters()[parameter];
  const std::string name = absl::StrCat(options_.checkpoint_dir, " unit ", info.unit);
  const size_t bytes = static_cast<size_t>(info.numel) * sizeof(float);
  const auto check_shape = [&](const std::string& tensor) -> absl::StatusOr<absl::string_view> {
    ASSIGN_OR_RETURN(const absl::string_view data, CheckpointBytes(file, name, tensor, bytes));
    if (file.tensors().at(tensor).shape == info.shape) return data;
    return absl::InvalidArgumentError(absl::StrCat(name, ": tensor ", tensor, " has another shape than the model's"));
  };
  const size_t newest = host_weights->size() - 1;
  for (size_t b = 0; b <= newest; ++b) {
    ASSIGN_OR_RETURN(const absl::string_view data, check_shape(WeightName(newest - b, info.name)));
    std::memcpy((*host_weights)[b].mutable_data_ptr<float>() + info.offset, data.data(), bytes);
  }
  for (auto& [kind, state] : optimizer_.StateOf(parameter)) {
    ASSIGN_OR_RETURN(const absl::string_view data, check_shape(absl::StrCat(kind, ".", info.name)));
    at::Tensor host = at::empty(info.shape, at::kFloat);
    std::memcpy(host.mutable_data_ptr<float>(), data.data(), bytes);
    at::Tensor target = state;
    target.copy_(host);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
