#include "model/main/whole_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/safetensors.h"
#include "common/status_macros.h"
#include "model/generate.h"
#include "model/stage_model.h"

namespace stagecoach {
namespace {

absl::Status CopyTensor(const SafetensorsReader& file, const std::string& path, const ParameterInfo& parameter,
                        float* destination) {
  const std::string name = absl::StrCat("w.0.", parameter.name);
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) return absl::DataLossError(absl::StrCat(path, ": tensor ", name, " is missing"));
  const TensorEntry& tensor = found->second;
  if (tensor.dtype != "F32" || tensor.shape != parameter.shape) {
    return absl::DataLossError(absl::StrCat(path, ": tensor ", name, " is ", tensor.dtype, " [",
                                            absl::StrJoin(tensor.shape, ","), "], the run record needs F32 [",
                                            absl::StrJoin(parameter.shape, ","), "]"));
  }
  std::memcpy(destination, tensor.data.data(), tensor.data.size());
  return absl::OkStatus();
}

at::Tensor AsTensor(absl::Span<const int64_t> values, int64_t sequences, int64_t tokens) {
  at::Tensor tensor = at::empty({sequences, tokens}, at::kLong);
  std::memcpy(tensor.mutable_data_ptr<int64_t>(), values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

}  // namespace

struct WholeModel::Impl {
  explicit Impl(const RunConfig& run) : config(run), model(run.model, run.seed, 0, run.model.num_units(), at::kCPU) {}

  RunConfig config;
  StageModel model;
  at::Tensor flat;
  std::vector<at::Tensor> parameters;  // views of flat
};

void PrepareTorch(int threads) { ConfigureTorch(threads); }

absl::StatusOr<WholeModel> WholeModel::Load(const RunConfig& config, const std::vector<std::string>& unit_files) {
  if (unit_files.size() != config.model.num_units()) {
    return absl::DataLossError(absl::StrCat("the checkpoint has ", unit_files.size(), " layer files, the model has ",
                                            config.model.num_units(), " units"));
  }
  auto impl = std::make_unique<Impl>(config);
  impl->flat = at::zeros({impl->model.flat_size()}, at::kFloat);
  float* weights = impl->flat.mutable_data_ptr<float>();
  size_t next = 0;
  const auto& parameters = impl->model.parameters();
  for (uint32_t unit = 0; unit < unit_files.size(); ++unit) {
    ASSIGN_OR_RETURN(const SafetensorsReader file, SafetensorsReader::Open(unit_files[unit]));
    for (; next < parameters.size() && parameters[next].unit == unit; ++next) {
      RETURN_IF_ERROR(CopyTensor(file, unit_files[unit], parameters[next], weights + parameters[next].offset));
    }
  }
  impl->parameters = impl->model.Views(impl->flat, /*requires_grad=*/false);
  return WholeModel(std::move(impl));
}

WholeModel::WholeModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WholeModel::WholeModel(WholeModel&&) noexcept = default;
WholeModel& WholeModel::operator=(WholeModel&&) noexcept = default;
WholeModel::~WholeModel() = default;

double WholeModel::LossSum(absl::Span<const int64_t> ids, absl::Span<const int64_t> labels) const {
  const c10::NoGradGuard no_grad;
  const int64_t sequences = impl_->config.sequences, tokens = impl_->config.tokens;
  StageModel::Batch batch;
  batch.training = false;
  batch.ids = AsTensor(ids, sequences, tokens);
  batch.labels = AsTensor(labels, sequences, tokens);
  double sum = 0;
  impl_->model.Forward(impl_->parameters, at::Tensor(), batch, &sum);
  return sum;
}

std::vector<int64_t> WholeModel::Sample(const std::vector<int64_t>& prompt, const SampleOptions& options) const {
  const c10::NoGradGuard no_grad;
  GenerateOptions sampling;
  sampling.count = options.count;
  sampling.window = impl_->config.model.max_tokens > 0 ? impl_->config.model.max_tokens : impl_->config.tokens;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.seed = options.seed;
  return Generate(impl_->model, impl_->parameters, prompt, sampling);
}

}  // namespace stagecoach
