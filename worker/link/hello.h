// The first message of a stream, and its comparison with what a receiver waits for.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "protos/link.pb.h"
#include "worker/link/peer_link.h"
#include "worker/tensor/reject_reason.h"

namespace stagecoach {

Hello MakeHello(const StreamIdentity& identity, uint64_t next_sequence);

// What names a stream within a process: run, cluster, cut, direction. Two plans use the same key one after the other.
bool SameStreamKey(const Hello& hello, const StreamIdentity& identity);

struct Refusal {
  RejectReason reason;
  absl::Status status;
};
enum class HelloMatch {
  kAccept,
  kWait,  // the sender already follows a later plan than this receiver: ours may come
  kRefuse,
};
// Precondition: SameStreamKey. expected_sequence: the first frame that the receiver lacks.
HelloMatch MatchHello(const Hello& hello, const StreamIdentity& identity, uint64_t expected_sequence, Refusal* refusal);

// "forward stream at cut 3 of run r": for messages.
std::string DescribeStream(const Hello& hello);
std::string DescribeStream(const StreamIdentity& identity);

}  // namespace stagecoach
