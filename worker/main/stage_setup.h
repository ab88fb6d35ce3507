// Turns the coordinator's order (record, plan, stage number) into what StageRunner and the executor need.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT names what does not fit together.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "model/run_config.h"
#include "protos/coordinator.pb.h"
#include "worker/compute/executor_factory.h"
#include "worker/main/stage_runner.h"

namespace stagecoach {

struct StageOrder {
  StageSetup setup;
  ExecutorOptions executor;  // device and pool are left to the caller
};

// `address_of`: where to dial the worker of that name, given its advertised address.
using AddressOfWorker = std::function<std::string(const std::string& worker, const std::string& advertised)>;

absl::StatusOr<StageOrder> ReadStageOrder(const AssignStage& assign, const std::string& own_name,
                                          uint64_t own_incarnation, const AddressOfWorker& address_of);

}  // namespace stagecoach
