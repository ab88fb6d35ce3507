#include "cli/coordinator_client.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/channel_settings.h"
#include "common/grpc/grpc_status.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

// A coordinator that is just starting opens its journal first; longer than this it is not coming.
constexpr std::chrono::seconds kConnectDeadline(10);
// Of one short call: a coordinator answers in milliseconds; a slow machine or a far one may need seconds.
constexpr std::chrono::seconds kCallDeadline(10);

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kCallDeadline);
}

}  // namespace

RunWatch::RunWatch(std::shared_ptr<Coordinator::Stub> stub, const std::string& run) : stub_(std::move(stub)) {
  thread_ = std::thread([this, run] { Read(run); });
}

RunWatch::~RunWatch() {
  context_.TryCancel();
  thread_.join();
}

void RunWatch::Read(const std::string& run) {
  WatchRequest request;
  request.set_run(run);
  const auto reader = stub_->Watch(&context_, request);
  RunStatus status;
  while (reader->Read(&status)) {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(status);
    changed_.notify_all();
  }
  const absl::Status end = FromGrpcStatus(reader->Finish());
  const std::lock_guard lock(mutex_);
  end_ = end;
  changed_.notify_all();
}

std::vector<RunStatus> RunWatch::Take(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout), [&] { return !arrived_.empty() || end_.has_value(); });
  std::vector<RunStatus> taken(std::make_move_iterator(arrived_.begin()), std::make_move_iterator(arrived_.end()));
  arrived_.clear();
  return taken;
}

std::optional<absl::Status> RunWatch::End() const {
  const std::lock_guard lock(mutex_);
  return arrived_.empty() ? end_ : std::nullopt;
}

CoordinatorClient::CoordinatorClient(std::string address)
    : address_(std::move(address)),
      channel_(MakeChannel(address_, ChannelKind::kControl)),
      stub_(Coordinator::NewStub(channel_)) {}

absl::Status CoordinatorClient::Connect() {
  if (connected_) return absl::OkStatus();  // who has lost it later is told at once: Ctrl-C cannot wait
  connected_ = channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectDeadline);
  if (connected_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no coordinator answers at ", address_, " (tried for ",
                                             kConnectDeadline.count(),
                                             " s); is stagecoach-coordinator running there?"));
}

absl::Status CoordinatorClient::Explain(const grpc::Status& status) const {
  const absl::Status error = FromGrpcStatus(status);
  if (absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error)) {
    return absl::UnavailableError(absl::StrCat("no coordinator answers at ", address_, " (", error.message(),
                                               "); is stagecoach-coordinator running there?"));
  }
  return error;
}

absl::StatusOr<std::string> CoordinatorClient::Submit(const SubmitRequest& request) {
  RETURN_IF_ERROR(Connect());
  grpc::ClientContext context;
  SetDeadline(&context);
  SubmitReply reply;
  if (const grpc::Status status = stub_->Submit(&context, request, &reply); !status.ok()) return Explain(status);
  return reply.run();
}

absl::Status CoordinatorClient::Stop(const std::string& run) {
  RETURN_IF_ERROR(Connect());
  grpc::ClientContext context;
  SetDeadline(&context);
  StopRequest request;
  request.set_run(run);
  StopReply reply;
  const grpc::Status status = stub_->Stop(&context, request, &reply);
  return status.ok() ? absl::OkStatus() : Explain(status);
}

absl::StatusOr<FleetStatusReply> CoordinatorClient::FleetStatus() {
  RETURN_IF_ERROR(Connect());
  grpc::ClientContext context;
  SetDeadline(&context);
  FleetStatusReply reply;
  if (const grpc::Status status = stub_->FleetStatus(&context, {}, &reply); !status.ok()) return Explain(status);
  return reply;
}

std::unique_ptr<RunWatch> CoordinatorClient::Watch(const std::string& run) {
  return std::make_unique<RunWatch>(stub_, run);
}

}  // namespace stagecoach
