#include "worker/main/compute_backend.h"

namespace stagecoach {

ComputeBackend FakeBackend(const FakeCosts& costs_per_unit) {
  ComputeBackend backend;
  backend.device = "fake";  // sleeps: the planner must not count it as load of the host's cores
  backend.create = [costs_per_unit](const ExecutorOptions& options) -> absl::StatusOr<std::unique_ptr<StageExecutor>> {
    const uint32_t units = options.config.end_unit(options.stage) - options.config.first_unit(options.stage);
    FakeCosts costs;
    costs.forward_seconds = costs_per_unit.forward_seconds * units;
    costs.backward_seconds = costs_per_unit.backward_seconds * units;
    costs.update_seconds = costs_per_unit.update_seconds * units;
    return CreateFakeExecutor(options, costs);
  };
  backend.measure = [costs_per_unit](const RunConfig&) -> absl::StatusOr<MeasuredUnits> {
    MeasuredUnit unit;
    unit.forward_seconds = costs_per_unit.forward_seconds;
    unit.backward_seconds = costs_per_unit.backward_seconds;
    unit.update_seconds = costs_per_unit.update_seconds;
    unit.parameters = 1;
    unit.activation_bytes = 1;
    return MeasuredUnits{unit, unit, unit, unit};
  };
  backend.fingerprint = [](const RunConfig&) -> absl::StatusOr<ExecutorFingerprint> { return ExecutorFingerprint{}; };
  return backend;
}

}  // namespace stagecoach
