// The control stream over real gRPC, against a server written for the test.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/event_loop.h"
#include "common/grpc/channel_settings.h"
#include "protos/coordinator.grpc.pb.h"
#include "worker/control/grpc_control_stream.h"

namespace stagecoach {
namespace {

// Runs a script for every session.
class ScriptedService final : public Coordinator::Service {
 public:
  using Stream = grpc::ServerReaderWriter<CoordinatorMessage, WorkerMessage>;
  using Script = std::function<grpc::Status(grpc::ServerContext*, Stream*)>;
  explicit ScriptedService(Script script) : script_(std::move(script)) {}
  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override { return script_(context, stream); }

 private:
  const Script script_;
};

class Server {
 public:
  explicit Server(ScriptedService::Script script) : service_(std::move(script)) {
    auto started = StartServer("127.0.0.1:0", ChannelKind::kControl, 64u << 20, &service_);
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  ~Server() { server_.server->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", server_.port); }

 private:
  ScriptedService service_;
  StartedServer server_;
};

// What arrives at the worker; waits with a deadline.
class Client {
 public:
  explicit Client(const std::string& address)
      : loop_("loop"), connector_(std::in_place, MakeChannel(address, ChannelKind::kControl), &loop_) {}
  ~Client() {
    InLoop([this] { stream_.reset(); });
    connector_.reset();
    loop_.Stop();
  }

  void Open() {
    InLoop([this] {
      ControlCallbacks callbacks;
      callbacks.on_message = [this](CoordinatorMessage message) { Note([&] { messages_.push_back(message); }); };
      callbacks.on_closed = [this](absl::Status status) { Note([&] { closed_ = status; }); };
      stream_ = connector_->Open(std::move(callbacks));
    });
  }
  void Send(WorkerMessage message) {
    InLoop([&] { stream_->Send(message); });
  }
  void Drop() {
    InLoop([this] { stream_.reset(); });
  }
  bool WaitUntil(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }
  size_t messages() const { return messages_.size(); }
  const std::optional<absl::Status>& closed() const { return closed_; }

 private:
  void InLoop(const std::function<void()>& function) {
    bool done = false;
    loop_.Post([&] {
      function();
      const std::lock_guard lock(mutex_);
      done = true;
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done; });
  }
  void Note(const std::function<void()>& function) {
    const std::lock_guard lock(mutex_);
    function();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CoordinatorMessage> messages_;
  std::optional<absl::Status> closed_;
  ThreadEventLoop loop_;
  std::optional<GrpcControlConnector> connector_;
  std::unique_ptr<ControlStream> stream_;
};

WorkerMessage Beat(uint64_t echo) {
  WorkerMessage message;
  message.mutable_heartbeat()->set_echo(echo);
  return message;
}

TEST(GrpcControlStreamTest, Messages_ArriveInOrderBothWays) {
  Server server([](grpc::ServerContext*, ScriptedService::Stream* stream) {
    WorkerMessage in;
    uint64_t expected = 0;
    while (expected < 1000 && stream->Read(&in)) {
      if (in.heartbeat().echo() != expected++) return grpc::Status(grpc::StatusCode::INTERNAL, "out of order");
      CoordinatorMessage out;
      out.mutable_heartbeat_reply()->set_echo(in.heartbeat().echo());
      stream->Write(out);
    }
    return grpc::Status::OK;
  });
  Client client(server.address());
  client.Open();
  for (uint64_t i = 0; i < 1000; ++i) client.Send(Beat(i));
  EXPECT_TRUE(client.WaitUntil([&] { return client.closed().has_value(); }));
  EXPECT_EQ(client.messages(), 1000u);
  ASSERT_TRUE(client.closed().has_value());
  EXPECT_TRUE(client.closed()->ok()) << *client.closed();
  client.Send(Beat(1));  // after the end: dropped, nothing breaks
}

TEST(GrpcControlStreamTest, Refusal_CarriesCodeAndText) {
  Server server([](grpc::ServerContext*, ScriptedService::Stream* stream) {
    WorkerMessage in;
    stream->Read(&in);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "name is not valid");
  });
  Client client(server.address());
  client.Open();
  client.Send(Beat(0));
  ASSERT_TRUE(client.WaitUntil([&] { return client.closed().has_value(); }));
  EXPECT_EQ(client.closed()->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client.closed()->message(), "name is not valid");
}

TEST(GrpcControlStreamTest, NobodyListens_ClosesAsUnavailable) {
  Client client("127.0.0.1:1");
  client.Open();
  client.Send(Beat(0));
  ASSERT_TRUE(client.WaitUntil([&] { return client.closed().has_value(); }));
  EXPECT_EQ(client.closed()->code(), absl::StatusCode::kUnavailable);
}

TEST(GrpcControlStreamTest, Dropped_CancelsTheCallAndCallsNobodyBack) {
  std::mutex mutex;
  std::condition_variable changed;
  int sessions = 0, ended = 0;
  Server server([&](grpc::ServerContext*, ScriptedService::Stream* stream) {
    WorkerMessage in;
    stream->Read(&in);
    {
      const std::lock_guard lock(mutex);
      ++sessions;
      changed.notify_all();
    }
    while (stream->Read(&in)) {
    }
    const std::lock_guard lock(mutex);
    ++ended;
    changed.notify_all();
    return grpc::Status::OK;
  });
  Client client(server.address());
  for (int round = 1; round <= 3; ++round) {
    client.Open();
    client.Send(Beat(0));
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return sessions == round; }));
    lock.unlock();
    client.Drop();
    lock.lock();
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return ended == round; }));
  }
  EXPECT_FALSE(client.closed().has_value());
}

TEST(GrpcControlStreamTest, CoordinatorThatDoesNotRead_ClosesTheStream) {
  std::mutex mutex;
  std::condition_variable changed;
  bool release = false;
  Server server([&](grpc::ServerContext*, ScriptedService::Stream*) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return release; });
    return grpc::Status::OK;
  });
  {
    Client client(server.address());
    client.Open();
    WorkerMessage large;
    large.mutable_stage_failed()->set_error(std::string(16 << 10, 'x'));
    for (int i = 0; i < 11'000 && !client.closed().has_value(); ++i) client.Send(large);
    EXPECT_TRUE(client.WaitUntil([&] { return client.closed().has_value(); }));
    ASSERT_TRUE(client.closed().has_value());
    EXPECT_EQ(client.closed()->code(), absl::StatusCode::kResourceExhausted);
  }
  const std::lock_guard lock(mutex);
  release = true;
  changed.notify_all();
}

}  // namespace
}  // namespace stagecoach
