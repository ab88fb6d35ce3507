#include "cli/train/run_text.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/interrupt.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/status_macros.h"
#include "model/data/prepare_text.h"

namespace stagecoach {

bool IsPreparedData(const std::string& path) {
  if (std::filesystem::is_directory(path)) return std::filesystem::exists(path + "/dataset.json");
  return path.ends_with(".bin");
}

absl::Status PrepareRunData(RunSpec* spec) {
  const std::string text = spec->data().path();
  if (IsPreparedData(text)) return absl::OkStatus();
  if (!CompleteCheckpoints(spec->run_dir()).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--data: ", text, " is text, and a run that goes on keeps its tokens; leave --data out"));
  }
  PrepareOptions options;
  options.inputs = {text};
  options.output = spec->run_dir() + "/data";
  options.interrupted = InterruptRequested;
  const absl::StatusOr<PrepareResult> result = PrepareText(options);
  if (absl::IsResourceExhausted(result.status())) {
    return absl::ResourceExhaustedError(absl::StrCat("--data: cannot prepare ", text, ": ", result.status().message(),
                                                     "; free some space there, or give another --run-dir"));
  }
  RETURN_IF_ERROR(result.status());
  std::fprintf(stderr, "prepared %llu tokens of %s\n", static_cast<unsigned long long>(result->tokens), text.c_str());
  spec->mutable_data()->set_path(options.output);
  return absl::OkStatus();
}

}  // namespace stagecoach
