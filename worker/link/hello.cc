#include "worker/link/hello.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

// Names from peers go into messages and logs: escaped, and cut.
std::string Quoted(const std::string& name) {
  constexpr size_t kMaxShownBytes = 64;  // names have at most 63
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, kMaxShownBytes)), "\"");
}

}  // namespace

Hello MakeHello(const StreamIdentity& identity, uint64_t next_sequence) {
  Hello hello;
  hello.set_run(identity.run);
  hello.set_cluster(identity.cluster);
  hello.set_epoch(identity.epoch);
  hello.set_worker(identity.sender);
  hello.set_incarnation(identity.sender_incarnation);
  hello.set_receiver_incarnation(identity.receiver_incarnation);
  hello.set_cut(identity.cut);
  hello.set_direction(static_cast<Direction>(identity.direction));
  hello.set_wire_format(identity.wire_format);
  hello.set_rows(identity.rows);
  hello.set_columns(identity.columns);
  hello.set_next_sequence(next_sequence);
  return hello;
}

bool SameStreamKey(const Hello& hello, const StreamIdentity& identity) {
  return hello.run() == identity.run && hello.cluster() == identity.cluster && hello.cut() == identity.cut &&
         hello.direction() == static_cast<Direction>(identity.direction);
}

HelloMatch MatchHello(const Hello& hello, const StreamIdentity& identity, uint64_t expected_sequence,
                      Refusal* refusal) {
  const auto refuse = [&](RejectReason reason, absl::StatusCode code, const std::string& text) {
    *refusal = {reason, absl::Status(code, absl::StrCat(DescribeStream(hello), " refused: ", text))};
    return HelloMatch::kRefuse;
  };
  if (hello.epoch() > identity.epoch) return HelloMatch::kWait;
  if (hello.epoch() < identity.epoch) {
    return refuse(RejectReason::kEpoch, absl::StatusCode::kFailedPrecondition,
                  absl::StrCat("stale epoch ", hello.epoch(), ", the plan is ", identity.epoch));
  }
  if (hello.worker() != identity.sender) {
    return refuse(RejectReason::kRun, absl::StatusCode::kFailedPrecondition,
                  absl::StrCat("the plan names another sender, ", identity.sender));
  }
  if (hello.incarnation() != identity.sender_incarnation) {
    return refuse(RejectReason::kIncarnation, absl::StatusCode::kAborted, "another life of the sender is expected");
  }
  if (hello.receiver_incarnation() != identity.receiver_incarnation) {
    return refuse(RejectReason::kIncarnation, absl::StatusCode::kAborted, "meant for another life of the receiver");
  }
  if (hello.wire_format() != identity.wire_format) {
    return refuse(RejectReason::kCodec, absl::StatusCode::kInvalidArgument,
                  absl::StrCat("wire format ", hello.wire_format(), ", the plan says ", identity.wire_format));
  }
  if (hello.rows() != identity.rows || hello.columns() != identity.columns) {
    return refuse(RejectReason::kShape, absl::StatusCode::kInvalidArgument,
                  absl::StrCat(hello.rows(), " x ", hello.columns(), " numbers, the plan says ", identity.rows, " x ",
                               identity.columns));
  }
  if (hello.next_sequence() > expected_sequence) {
    return refuse(RejectReason::kSequenceGap, absl::StatusCode::kFailedPrecondition,
                  absl::StrCat("it starts at ", hello.next_sequence(), ", needed from ", expected_sequence));
  }
  return HelloMatch::kAccept;
}

std::string DescribeStream(const Hello& hello) {
  const char* const direction = hello.direction() == DIRECTION_BACKWARD    ? "backward"
                                : hello.direction() == DIRECTION_AVERAGING ? "averaging"
                                                                           : "forward";
  return absl::StrCat(direction, " stream at cut ", hello.cut(), " of run ", Quoted(hello.run()), " from worker ",
                      Quoted(hello.worker()));
}

std::string DescribeStream(const StreamIdentity& identity) { return DescribeStream(MakeHello(identity, 0)); }

}  // namespace stagecoach
