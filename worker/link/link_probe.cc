#include "worker/link/link_probe.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/grpc/channel_settings.h"
#include "common/grpc/grpc_status.h"
#include "common/status_macros.h"
#include "protos/link.grpc.pb.h"

namespace stagecoach {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kDelayCalls = 8;
constexpr size_t kFirstBytes = size_t{256} << 10;
constexpr size_t kLastBytes = size_t{1} << 20;  // the largest message
constexpr double kLongEnoughSeconds = 0.05;     // larger messages gain nothing beyond this
constexpr int kMostRateCalls = 24;
constexpr int kFewestRateCalls = 5;  // the first ones see a connection that is still speeding up
constexpr double kSettled = 0.95;    // three calls in a row this close to the best: no need to go on
constexpr std::chrono::seconds kCallDeadline(10);

absl::StatusOr<double> Call(PeerLink::Stub* stub, const EchoRequest& request, double deadline_seconds, bool wait) {
  grpc::ClientContext context;
  context.set_wait_for_ready(wait);
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::microseconds(static_cast<int64_t>(deadline_seconds * 1e6)));
  EchoReply reply;
  const auto start = SteadyClock::now();
  const grpc::Status status = stub->Echo(&context, request, &reply);
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
  if (!status.ok()) return FromGrpcStatus(status);
  if (reply.received_bytes() != request.payload().size()) {
    return absl::DataLossError("the peer received another number of bytes than were sent");
  }
  return seconds;
}

}  // namespace

absl::StatusOr<LinkProbeResult> ProbeLink(const std::string& address, const LinkProbeOptions& options) {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address, ChannelKind::kData);
  const std::unique_ptr<PeerLink::Stub> stub = PeerLink::NewStub(channel);
  EchoRequest request;
  // Waits for the connection; its time does not count.
  const auto first = Call(stub.get(), request, options.connect_seconds, true);
  if (!first.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot probe the link; is the peer running and its address reachable? address=", address,
                     " reason=", first.status().message()));
  }
  const double deadline = std::chrono::duration<double>(kCallDeadline).count();
  LinkProbeResult result;
  result.rtt_seconds = deadline;
  for (int i = 0; i < kDelayCalls; ++i) {
    ASSIGN_OR_RETURN(const double seconds, Call(stub.get(), request, deadline, false));
    result.rtt_seconds = std::min(result.rtt_seconds, seconds);
  }
  const auto start = SteadyClock::now();
  size_t bytes = kFirstBytes;
  int settled = 0;
  for (int i = 0; i < kMostRateCalls && settled < 3; ++i) {
    request.mutable_payload()->assign(bytes, 'x');
    ASSIGN_OR_RETURN(const double seconds, Call(stub.get(), request, deadline, false));
    // A message that needs no time beyond the round trip says only that the link is faster than we can see.
    const double transfer = std::max(seconds - result.rtt_seconds, seconds / 10);
    const double rate = static_cast<double>(bytes) / transfer;
    settled = i + 1 >= kFewestRateCalls && rate > kSettled * result.bytes_per_second ? settled + 1 : 0;
    result.bytes_per_second = std::max(result.bytes_per_second, rate);
    if (transfer < kLongEnoughSeconds) bytes = std::min(2 * bytes, kLastBytes);
    if (std::chrono::duration<double>(SteadyClock::now() - start).count() > options.rate_seconds) break;
  }
  return result;
}

}  // namespace stagecoach
