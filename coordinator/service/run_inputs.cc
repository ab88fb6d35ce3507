#include "coordinator/service/run_inputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/run_spec/run_spec_record.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/status_macros.h"
#include "model/data/token_dataset.h"

namespace stagecoach {
namespace {

absl::Status OpenData(const RunSpec& spec, RunInputs* inputs) {
  const DataSpec& data = spec.data();
  const ScheduleSpec& schedule = spec.schedule();
  // Every byte is hashed: tokens that changed since an earlier run must not be trained on in silence.
  auto dataset = TokenDataset::Open(data.path(), /*verify=*/true);
  if (!dataset.ok()) {
    return absl::Status(dataset.status().code(), absl::StrCat("data.path: ", dataset.status().message()));
  }
  for (const TokenShard& shard : dataset->shards()) {
    DataShard& row = inputs->shards.emplace_back();
    row.set_path(shard.path);
    row.set_sha256(shard.sha256);
    row.set_tokens(shard.tokens);
  }
  inputs->data_tokens = dataset->num_tokens();
  inputs->vocabulary = dataset->vocabulary();
  const auto split = SplitWindows(dataset->num_tokens(), schedule.sequence_tokens(), data.validation_fraction());
  if (!split.ok()) {
    return absl::Status(split.status().code(),
                        absl::StrCat("data.path: ", data.path(), ": ", split.status().message()));
  }
  inputs->training_windows = split->training;
  inputs->evaluation_windows = split->evaluation;
  // Seconds for hundreds of millions of tokens; an earlier run has done it.
  if (!inputs->earlier && spec.evaluation().microbatches() > 0) {
    inputs->bigram_loss = BigramLoss(*dataset, *split, schedule.sequences(), schedule.sequence_tokens(),
                                     spec.evaluation().microbatches());
  }
  return absl::OkStatus();
}

// The arithmetic is that of the earlier run; where it is kept and how often is the user's.
absl::Status AdoptRecord(const RunSpec& wanted, RunInputs* inputs) {
  ASSIGN_OR_RETURN(inputs->spec, MergeWithRecord(wanted, *inputs->earlier, &inputs->notes));
  inputs->updates_per_step = std::max<uint64_t>(1, inputs->earlier->updates_per_step());
  // The record's own numbers, bit for bit; only what may change is counted anew.
  RunSpec spec = inputs->earlier->spec();
  spec.set_name(inputs->spec.name());
  spec.set_run_dir(inputs->spec.run_dir());
  spec.mutable_data()->set_path(inputs->spec.data().path());
  *spec.mutable_checkpoint() = inputs->spec.checkpoint();
  *spec.mutable_replan() = inputs->spec.replan();
  spec.mutable_checkpoint()->set_every_steps(inputs->spec.checkpoint().every_steps() * inputs->updates_per_step);
  spec.mutable_evaluation()->set_every_steps(inputs->spec.evaluation().every_steps() * inputs->updates_per_step);
  spec.mutable_schedule()->set_recompute(inputs->spec.schedule().recompute());
  inputs->spec = std::move(spec);
  return absl::OkStatus();
}

absl::Status CheckSameData(const RunInputs& inputs) {
  const RunRecord& earlier = *inputs.earlier;
  bool same =
      earlier.data_tokens() == inputs.data_tokens && static_cast<size_t>(earlier.shards_size()) == inputs.shards.size();
  for (int i = 0; same && i < earlier.shards_size(); ++i) {
    same = earlier.shards(i).sha256() == inputs.shards[static_cast<size_t>(i)].sha256();
  }
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("data.path: ", inputs.spec.data().path(), " holds other tokens (",
                                                    inputs.data_tokens, ") than the earlier run was trained on (",
                                                    earlier.data_tokens(), "); give the same data"));
}

}  // namespace

absl::StatusOr<RunInputs> ReadRunInputs(const SubmitRequest& request) {
  RunInputs inputs;
  inputs.spec = request.spec();
  inputs.stop_after = request.stop_after();
  const RunSpec wanted = inputs.spec;  // without defaults: what was not given contradicts nothing
  FillDefaults(&inputs.spec, 0);
  if (!request.resume() && !CompleteCheckpoints(wanted.run_dir()).empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "run_dir: ", wanted.run_dir(), " holds the checkpoints of a run; resume it or give another folder"));
  }
  if (request.resume()) {
    std::vector<std::string> rejected;
    auto manifest = NewestVerified(wanted.run_dir(), &rejected);
    for (const std::string& line : rejected) inputs.notes.push_back(absl::StrCat("not used: ", line));
    if (!manifest.ok()) {
      return absl::Status(manifest.status().code(),
                          absl::StrCat("--resume: ", manifest.status().message(),
                                       rejected.empty() ? "" : absl::StrCat("; ", rejected[0])));
    }
    inputs.earlier = manifest->record();
    inputs.checkpoint = *std::move(manifest);
  } else if (!request.like_run_dir().empty()) {
    auto record = ReadRunRecord(request.like_run_dir());
    if (!record.ok()) {
      return absl::Status(record.status().code(), absl::StrCat("--like: ", record.status().message()));
    }
    if (record->earlier_plans_size() > 0) {
      return absl::InvalidArgumentError(absl::StrCat("--like: ", request.like_run_dir(), " was planned anew at step ",
                                                     record->earlier_plans(0).end_step(),
                                                     ", its cuts are not those of one plan; take another run"));
    }
    inputs.earlier = *std::move(record);
  }
  if (inputs.earlier) RETURN_IF_ERROR(AdoptRecord(wanted, &inputs));
  RETURN_IF_ERROR(OpenData(inputs.spec, &inputs));
  FillDefaults(&inputs.spec, inputs.vocabulary);
  if (inputs.spec.model().vocabulary() < inputs.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat("model.vocabulary: ", inputs.spec.model().vocabulary(),
                                                   " is below that of the data, ", inputs.vocabulary));
  }
  if (inputs.earlier) {
    RETURN_IF_ERROR(CheckSameData(inputs));
    inputs.training_windows = inputs.earlier->training_windows();
    inputs.evaluation_windows = inputs.earlier->evaluation_windows();
    inputs.bigram_loss = inputs.earlier->bigram_loss();
  }
  return inputs;
}

absl::Status TakeUpNewestCheckpoint(absl::string_view reason, RunInputs* inputs) {
  std::vector<std::string> rejected;
  ASSIGN_OR_RETURN(CheckpointManifest manifest, NewestVerified(inputs->spec.run_dir(), &rejected));
  inputs->notes = {absl::StrCat("planned anew from step ", manifest.step(), ": ", reason)};
  for (const std::string& line : rejected) inputs->notes.push_back(absl::StrCat("not used: ", line));
  inputs->earlier = manifest.record();
  inputs->updates_per_step = std::max<uint64_t>(1, manifest.record().updates_per_step());
  inputs->checkpoint = std::move(manifest);
  inputs->replan_reason = std::string(reason);
  return absl::OkStatus();
}

}  // namespace stagecoach
