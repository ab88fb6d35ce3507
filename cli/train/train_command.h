// `stagecoach train`: a whole fleet on this machine, from the run spec to the report.
//
// Threading: the main thread. Returns the exit status; messages go to standard error, the report to standard output.
#pragma once

#include "cli/train/train_options.h"

namespace stagecoach {

int RunTrain(const TrainOptions& options);

}  // namespace stagecoach
