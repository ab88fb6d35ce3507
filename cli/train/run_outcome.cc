#include "cli/train/run_outcome.h"

#include <cstdio>

#include "cli/run/run_report.h"
#include "common/checkpoint/checkpoint_store.h"

namespace stagecoach {

absl::Status ReportRun(const RunHistory& history, const absl::Status& followed, const std::string& links,
                       const std::vector<std::string>& files) {
  if (history.empty()) return absl::OkStatus();
  const RunStatus& latest = history.latest();
  ReportContext context;
  context.run_dir = latest.record().spec().run_dir();
  context.link_profile = links;
  context.error = std::string(followed.message());
  if (const auto manifest = ReadManifest(context.run_dir, latest.steps_done()); manifest.ok()) {
    context.losses.assign(manifest->losses().begin(), manifest->losses().end());
  }
  const auto report = MakeRunReport(history, context);
  absl::Status written;
  for (const std::string& file : files) written.Update(WriteJsonFile(file, report));
  if (latest.steps_done() > 0) {
    std::fputs(FormatRunReport(report).c_str(), stdout);
    std::fflush(stdout);
  }
  return written;
}

}  // namespace stagecoach
