#include "common/run_spec/run_spec_record.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/run_spec/run_spec_fields.h"
#include "common/run_spec/run_spec_yaml.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace stagecoach {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr uint64_t kMostSteps = 1000000000;  // of every key that counts steps

// Where a key such as schedule.steps lies.
struct Place {
  const Message* message;
  const FieldDescriptor* field;
  bool set() const { return message->GetReflection()->HasField(*message, field); }
};

Place FindPlace(const RunSpec& spec, absl::string_view path) {
  Place place{&spec, nullptr};
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    if (place.field != nullptr) {
      place.message = &place.message->GetReflection()->GetMessage(*place.message, place.field);
    }
    place.field = place.message->GetDescriptor()->FindFieldByName(std::string(part));
  }
  return place;
}

// "auto" in numbers: 0 microbatches and J = -1 leave the choice to the plan.
bool Given(const RunSpec& wanted, absl::string_view path) {
  if (path == "schedule.j" && wanted.schedule().j() < 0) return false;
  return FindPlace(wanted, path).set();
}

bool MayChange(absl::string_view path) {
  static const auto* const kPaths = new std::set<absl::string_view>{"name",
                                                                    "run_dir",
                                                                    "data.path",
                                                                    "checkpoint.every_steps",
                                                                    "checkpoint.keep",
                                                                    "replan.lost_worker",
                                                                    "replan.most_per_hour",
                                                                    "evaluation.every_steps",
                                                                    "evaluation.microbatches",
                                                                    "schedule.recompute",
                                                                    "schedule.steps"};
  return kPaths->count(path) > 0;
}

std::string TextOrNone(const RunSpec& spec, const FieldRule& rule) {
  const Place place = FindPlace(spec, rule.path);
  return place.set() ? FieldText(*place.message, place.field) : absl::StrCat("none (default ", rule.fallback, ")");
}

bool Equal(const Place& a, const Place& b) {
  if (!b.set() && !a.set()) return true;
  return FieldText(*a.message, a.field) == FieldText(*b.message, b.field);
}

absl::Status CheckEqual(const RunSpec& wanted, const RunSpec& recorded) {
  for (const FieldRule& rule : RunSpecFields()) {
    const absl::string_view path = rule.path;
    if (MayChange(path) || !Given(wanted, path)) continue;
    const bool choose = wanted.averaging().choose_clusters();
    const uint32_t clusters = std::max(1u, recorded.averaging().clusters());
    if (absl::StartsWith(path, "averaging.") && clusters == 1 &&
        (choose || std::max(1u, wanted.averaging().clusters()) == 1)) {
      continue;  // of no meaning in a run of one cluster, whose record has no averaging
    }
    // The record has what was chosen, within what was allowed.
    if (path == "averaging.choose_clusters") continue;
    if (path == "averaging.clusters" && choose && clusters <= wanted.averaging().clusters()) continue;
    if (Equal(FindPlace(wanted, path), FindPlace(recorded, path))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", TextOrNone(wanted, rule), " contradicts the record of the earlier run, which has ",
                     TextOrNone(recorded, rule),
                     "; leave it out, or start a new run (without --resume or --like) in another folder"));
  }
  return absl::OkStatus();
}

}  // namespace

void ScaleSteps(uint64_t updates_per_step, RunSpec* spec) {
  ScheduleSpec* schedule = spec->mutable_schedule();
  schedule->set_steps(schedule->steps() * updates_per_step);
  schedule->set_sync_warmup_steps(schedule->sync_warmup_steps() * updates_per_step);
  spec->mutable_optimizer()->set_warmup_steps(
      static_cast<uint32_t>(std::min<uint64_t>(spec->optimizer().warmup_steps() * updates_per_step, kMostSteps)));
  spec->mutable_evaluation()->set_every_steps(spec->evaluation().every_steps() * updates_per_step);
  spec->mutable_checkpoint()->set_every_steps(spec->checkpoint().every_steps() * updates_per_step);
}

RunSpec SpecAsWritten(const RunRecord& record) {
  RunSpec spec = record.spec();
  const uint64_t updates = std::max<uint64_t>(1, record.updates_per_step());
  if (updates == 1) return spec;
  ScheduleSpec* schedule = spec.mutable_schedule();
  schedule->set_steps(schedule->steps() / updates);
  schedule->set_sync_warmup_steps(schedule->sync_warmup_steps() / updates);
  schedule->set_microbatches(static_cast<uint32_t>(updates));
  spec.mutable_optimizer()->set_warmup_steps(static_cast<uint32_t>(spec.optimizer().warmup_steps() / updates));
  spec.mutable_evaluation()->set_every_steps(spec.evaluation().every_steps() / updates);
  spec.mutable_checkpoint()->set_every_steps(spec.checkpoint().every_steps() / updates);
  return spec;
}

absl::StatusOr<RunSpec> MergeWithRecord(const RunSpec& wanted, const RunRecord& record,
                                        std::vector<std::string>* notes) {
  RunSpec spec = SpecAsWritten(record);
  if (const absl::Status status = CheckEqual(wanted, spec); !status.ok()) return status;
  if (!wanted.name().empty()) spec.set_name(wanted.name());
  if (!wanted.run_dir().empty()) spec.set_run_dir(wanted.run_dir());
  if (!wanted.data().path().empty()) spec.mutable_data()->set_path(wanted.data().path());
  // 0 is a value of these two: only at the end.
  spec.mutable_checkpoint()->set_every_steps(wanted.checkpoint().every_steps());
  spec.mutable_evaluation()->set_every_steps(wanted.evaluation().every_steps());
  if (wanted.checkpoint().keep() > 0) spec.mutable_checkpoint()->set_keep(wanted.checkpoint().keep());
  spec.mutable_replan()->MergeFrom(wanted.replan());
  if (wanted.schedule().recompute() != RECOMPUTE_UNSPECIFIED) {
    spec.mutable_schedule()->set_recompute(wanted.schedule().recompute());
  }
  const uint64_t steps = wanted.schedule().steps();
  if (steps > 0 && steps != spec.schedule().steps()) {
    notes->push_back(absl::StrCat("schedule.steps ", steps, " is not used: the earlier run has ",
                                  spec.schedule().steps(),
                                  ", and its learning rate depends on it; --stop-after ends it earlier"));
  }
  if (wanted.evaluation().has_microbatches() &&
      wanted.evaluation().microbatches() != spec.evaluation().microbatches()) {
    notes->push_back(absl::StrCat("evaluation.microbatches ", wanted.evaluation().microbatches(),
                                  " is not used: the earlier run has ", spec.evaluation().microbatches(),
                                  ", and its losses are compared on them"));
  }
  return spec;
}

}  // namespace stagecoach
