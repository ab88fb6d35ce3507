#include "coordinator/service/wire_checks.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/run_spec/run_spec_fields.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/status_macros.h"
#include "google/protobuf/descriptor.h"

namespace stagecoach {
namespace {

constexpr double kMaxSeconds = 1e5;  // a day: no unit, update or round trip takes longer
constexpr double kMaxBytesPerSecond = 1e12;
constexpr size_t kMaxText = 256;        // addresses, versions, file names, digests
constexpr size_t kMaxErrorText = 8192;  // an error with its causes
constexpr int kMaxCounterRows = 64;     // reasons and lags of one worker
constexpr uint32_t kMaxCores = 65536;

absl::Status Malformed(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", field, " ", what));
}

absl::Status CheckText(absl::string_view field, const std::string& text, size_t limit) {
  return text.size() <= limit ? absl::OkStatus() : Malformed(field, absl::StrCat("is longer than ", limit, " bytes"));
}

absl::Status CheckNumber(absl::string_view field, double value, double limit) {
  return std::isfinite(value) && value >= 0 && value <= limit
             ? absl::OkStatus()
             : Malformed(field, absl::StrCat("is not between 0 and ", limit));
}

absl::Status CheckTiming(absl::string_view field, const UnitTiming& timing) {
  RETURN_IF_ERROR(CheckNumber(field, timing.forward_seconds(), kMaxSeconds));
  RETURN_IF_ERROR(CheckNumber(field, timing.backward_seconds(), kMaxSeconds));
  RETURN_IF_ERROR(CheckNumber(field, timing.update_seconds(), kMaxSeconds));
  RETURN_IF_ERROR(CheckNumber(field, static_cast<double>(timing.parameters()), 1e13));
  return CheckNumber(field, static_cast<double>(timing.activation_bytes()), 1e15);
}

absl::Status CheckProbe(const ProbeResult& probe) {
  RETURN_IF_ERROR(CheckText("probe_result.error", probe.error(), kMaxErrorText));
  RETURN_IF_ERROR(CheckTiming("probe_result.embedding", probe.embedding()));
  RETURN_IF_ERROR(CheckTiming("probe_result.block", probe.block()));
  RETURN_IF_ERROR(CheckTiming("probe_result.tail_block", probe.tail_block()));
  return CheckTiming("probe_result.head", probe.head());
}

absl::Status CheckLink(const LinkResult& link) {
  RETURN_IF_ERROR(CheckText("link_result.error", link.error(), kMaxErrorText));
  RETURN_IF_ERROR(CheckNumber("link_result.rtt_seconds", link.rtt_seconds(), kMaxSeconds));
  return CheckNumber("link_result.bytes_per_second", link.bytes_per_second(), kMaxBytesPerSecond);
}

absl::Status CheckCounters(const WorkerCounters& counters) {
  if (counters.waiting_seconds_size() > kMaxCounterRows || counters.rejected_frames_size() > kMaxCounterRows ||
      counters.staleness_size() > kMaxCounterRows) {
    return Malformed("counters", absl::StrCat("have more than ", kMaxCounterRows, " rows"));
  }
  for (const auto& [reason, seconds] : counters.waiting_seconds()) {
    RETURN_IF_ERROR(CheckText("counters.waiting_seconds", reason, kMaxText));
    RETURN_IF_ERROR(CheckNumber("counters.waiting_seconds", seconds, 1e9));
  }
  for (const auto& [reason, count] : counters.rejected_frames()) {
    RETURN_IF_ERROR(CheckText("counters.rejected_frames", reason, kMaxText));
  }
  return CheckNumber("counters.busy_seconds", counters.busy_seconds(), 1e9);
}

// The loss and the norm of a skipped step may be anything; those of an applied one are finite.
absl::Status CheckStep(const StepReport& report) {
  if (!report.has_loss() && !report.has_scalar()) return Malformed("step_report", "says nothing");
  if (report.has_scalar() && !report.skip()) {
    RETURN_IF_ERROR(CheckNumber("step_report.clip", report.clip(), 1));
    RETURN_IF_ERROR(CheckNumber("step_report.square_sum", report.square_sum(), 1e300));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRegister(const Register& message) {
  if (!IsValidName(message.name())) return Malformed("register.name", "is not 1..63 of a-z, 0-9, -");
  if (message.incarnation() == 0) return Malformed("register.incarnation", "is 0");
  if (message.address().empty()) return Malformed("register.address", "is missing");
  for (const std::string* text : {&message.address(), &message.device(), &message.host(), &message.version(),
                                  &message.torch_version(), &message.cpu_capability()}) {
    RETURN_IF_ERROR(CheckText("register", *text, kMaxText));
  }
  if (message.cores() == 0 || message.cores() > kMaxCores) return Malformed("register.cores", "is not 1..65536");
  return absl::OkStatus();
}

absl::Status CheckWorkerMessage(const WorkerMessage& message) {
  switch (message.message_case()) {
    case WorkerMessage::kHeartbeat:
      return CheckCounters(message.heartbeat().counters());
    case WorkerMessage::kProbeResult:
      return CheckProbe(message.probe_result());
    case WorkerMessage::kLinkResult:
      return CheckLink(message.link_result());
    case WorkerMessage::kStageReady:
      RETURN_IF_ERROR(CheckText("stage_ready.basis_sha256", message.stage_ready().basis_sha256(), kMaxText));
      return CheckText("stage_ready.anchor_sha256", message.stage_ready().anchor_sha256(), kMaxText);
    case WorkerMessage::kStepReport:
      return CheckStep(message.step_report());
    case WorkerMessage::kEvaluationReport:
      return absl::OkStatus();  // a diverged model may evaluate to anything
    case WorkerMessage::kCheckpointPart:
      return CheckText("checkpoint_part.error", message.checkpoint_part().error(), kMaxErrorText);
    case WorkerMessage::kStageFinished:
      return CheckCounters(message.stage_finished().counters());
    case WorkerMessage::kStageFailed:
      RETURN_IF_ERROR(CheckText("stage_failed.peer", message.stage_failed().peer(), kMaxText));
      return CheckText("stage_failed.error", message.stage_failed().error(), kMaxErrorText);
    case WorkerMessage::kStopPoint:
    case WorkerMessage::kRoundReady:
      return absl::OkStatus();
    case WorkerMessage::kRoundProposal:
      return CheckText("round_proposal.hash", message.round_proposal().hash(), kMaxText);
    case WorkerMessage::kRegister:
      return Malformed("register", "came twice on one stream");
    default:
      return Malformed("message", "is of no known kind");
  }
}

absl::Status CheckSubmit(const SubmitRequest& request) {
  RETURN_IF_ERROR(ValidateRunSpec(request.spec()));
  if (request.workers() > 256) return Malformed("workers", "is above 256 stages");  // 07 section 3
  RETURN_IF_ERROR(CheckText("like_run_dir", request.like_run_dir(), 4096));
  if (request.resume() && !request.like_run_dir().empty()) {
    return absl::InvalidArgumentError("--resume and --like cannot be combined: a resumed run keeps its own record");
  }
  return absl::OkStatus();
}

uint64_t BytesFieldsSize(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  uint64_t total = 0;
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->type() == FieldDescriptor::TYPE_BYTES) {
        total += (field->is_repeated() ? reflection->GetRepeatedString(message, field, i)
                                       : reflection->GetString(message, field))
                     .size();
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        total += BytesFieldsSize(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                                      : reflection->GetMessage(message, field));
      }
    }
  }
  for (int i = 0; i < reflection->GetUnknownFields(message).field_count(); ++i) {
    const auto& unknown = reflection->GetUnknownFields(message).field(i);
    if (unknown.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      total += unknown.length_delimited().size();
    }
  }
  return total;
}

}  // namespace stagecoach
