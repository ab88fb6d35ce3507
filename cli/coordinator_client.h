// The coordinator as the tool sees it: calls with deadlines, and a watch that is read on a thread of its own.
//
// Threading: calls block the caller, at most their deadline. Create after every child process has been started: gRPC's
// threads do not survive a fork.
// Errors: UNAVAILABLE with the address when nobody answers (the first call waits 10 s for a coordinator to start);
// otherwise what the coordinator said.
#pragma once

#include <grpcpp/channel.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/coordinator.grpc.pb.h"

namespace stagecoach {

// Reads a Watch stream. The destructor cancels it.
class RunWatch {
 public:
  RunWatch(std::shared_ptr<Coordinator::Stub> stub, const std::string& run);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // What has arrived, waiting at most `timeout` for something.
  std::vector<RunStatus> Take(absl::Duration timeout);
  // How the stream ended; nothing while it goes on, or while Take has something left.
  std::optional<absl::Status> End() const;

 private:
  void Read(const std::string& run);
  const std::shared_ptr<Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RunStatus> arrived_;  // at most 4 a second come, and the reader takes all of them
  std::optional<absl::Status> end_;
  std::thread thread_;
};

class CoordinatorClient {
 public:
  explicit CoordinatorClient(std::string address);
  absl::StatusOr<std::string> Submit(const SubmitRequest& request);  // the run's id
  absl::Status Stop(const std::string& run);
  absl::StatusOr<FleetStatusReply> FleetStatus();
  std::unique_ptr<RunWatch> Watch(const std::string& run);

 private:
  // The first call waits for a coordinator that is just starting.
  absl::Status Connect();
  absl::Status Explain(const grpc::Status& status) const;
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  bool connected_ = false;
  std::shared_ptr<Coordinator::Stub> stub_;
};

}  // namespace stagecoach
