#include "worker/control/coordinator_session.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/support/manual_loop.h"

namespace stagecoach {
namespace {

using namespace std::chrono_literals;

// Streams that record what was sent; the test plays the coordinator.
class FakeConnector final : public ControlConnector {
 public:
  std::unique_ptr<ControlStream> Open(ControlCallbacks callbacks) override {
    ++opened;
    current = std::move(callbacks);
    sent.clear();
    return std::make_unique<Stream>(this);
  }
  void Registered(uint32_t interval_ms = 250) {
    CoordinatorMessage message;
    message.mutable_registered()->set_heartbeat_interval_ms(interval_ms);
    current.on_message(message);
  }
  size_t Heartbeats() const {
    size_t count = 0;
    for (const WorkerMessage& message : sent) count += message.has_heartbeat();
    return count;
  }

  int opened = 0;
  ControlCallbacks current;
  std::vector<WorkerMessage> sent;

 private:
  class Stream final : public ControlStream {
   public:
    explicit Stream(FakeConnector* connector) : connector_(connector) {}
    void Send(WorkerMessage message) override { connector_->sent.push_back(std::move(message)); }

   private:
    FakeConnector* const connector_;
  };
};

class CoordinatorSessionTest : public ::testing::Test {
 protected:
  void Start() {
    SessionCallbacks callbacks;
    callbacks.make_register = [this] {
      Register message;
      message.set_incarnation(++incarnations_);
      return message;
    };
    callbacks.make_heartbeat = [] { return Heartbeat(); };
    callbacks.on_message = [this](CoordinatorMessage message) { messages_.push_back(std::move(message)); };
    callbacks.on_lost = [this](absl::Status) { ++lost_; };
    callbacks.on_given_up = [this](absl::Status status) { given_up_ = std::move(status); };
    session_.emplace(&loop_, &connector_, std::move(callbacks));
    session_->Start();
  }
  void Break(absl::Status status) {
    const auto on_closed = connector_.current.on_closed;
    on_closed(std::move(status));
  }

  testing::ManualLoop loop_;
  FakeConnector connector_;
  std::optional<CoordinatorSession> session_;
  std::vector<CoordinatorMessage> messages_;
  uint64_t incarnations_ = 0;
  int lost_ = 0;
  std::optional<absl::Status> given_up_;
};

TEST_F(CoordinatorSessionTest, Start_SaysRegisterFirst) {
  Start();
  ASSERT_EQ(connector_.sent.size(), 1u);
  EXPECT_TRUE(connector_.sent[0].has_register_());
  EXPECT_FALSE(session_->registered());
  session_->Send(WorkerMessage());  // dropped: not registered
  EXPECT_EQ(connector_.sent.size(), 1u);
}

TEST_F(CoordinatorSessionTest, Registered_SendsHeartbeatsAtTheIntervalAsked) {
  Start();
  connector_.Registered(100);
  loop_.Advance(1s);
  EXPECT_EQ(connector_.Heartbeats(), 11u);
  CoordinatorMessage slower;
  slower.mutable_heartbeat_reply()->set_heartbeat_interval_ms(500);
  connector_.current.on_message(slower);
  loop_.Advance(100ms);  // the one under way
  const size_t before = connector_.Heartbeats();
  loop_.Advance(1s);
  EXPECT_EQ(connector_.Heartbeats(), before + 2);
}

TEST_F(CoordinatorSessionTest, IntervalOutOfRange_IsClamped) {
  Start();
  connector_.Registered(1);
  loop_.Advance(1s);
  EXPECT_EQ(connector_.Heartbeats(), 21u);
}

TEST_F(CoordinatorSessionTest, StreamBreaks_ReportsLossAndRegistersAsAnotherIncarnation) {
  Start();
  connector_.Registered();
  Break(absl::UnavailableError("reset"));
  EXPECT_EQ(lost_, 1);
  EXPECT_FALSE(session_->registered());
  loop_.Advance(100ms);
  EXPECT_EQ(connector_.opened, 2);
  ASSERT_FALSE(connector_.sent.empty());
  EXPECT_EQ(connector_.sent[0].register_().incarnation(), 2u);
  connector_.Registered();
  EXPECT_TRUE(session_->registered());
  EXPECT_FALSE(given_up_.has_value());
}

TEST_F(CoordinatorSessionTest, CoordinatorSilent_CountsAsLostAfter15Seconds) {
  Start();
  connector_.Registered();
  loop_.Advance(14s);
  EXPECT_EQ(lost_, 0);
  connector_.current.on_message(CoordinatorMessage());
  loop_.Advance(14s);
  EXPECT_EQ(lost_, 0);
  loop_.Advance(1s);
  EXPECT_EQ(lost_, 1);
}

TEST_F(CoordinatorSessionTest, NeverReachable_GivesUpAfterAMinute) {
  Start();
  for (int i = 0; i < 1000 && !given_up_; ++i) {
    const int opened = connector_.opened;
    Break(absl::UnavailableError("connection refused"));
    while (connector_.opened == opened && !given_up_) loop_.Advance(100ms);
  }
  ASSERT_TRUE(given_up_.has_value());
  EXPECT_EQ(given_up_->code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(connector_.opened, 12);  // the pauses stop growing at 5 s
  EXPECT_LE(connector_.opened, 25);
  EXPECT_EQ(lost_, 0);
}

TEST_F(CoordinatorSessionTest, Refused_GivesUpAtOnce) {
  Start();
  Break(absl::InvalidArgumentError("name is not valid"));
  ASSERT_TRUE(given_up_.has_value());
  loop_.Advance(60s);
  EXPECT_EQ(connector_.opened, 1);
}

TEST_F(CoordinatorSessionTest, Stop_EndsHeartbeats) {
  Start();
  connector_.Registered();
  session_->Stop();
  const size_t before = connector_.sent.size();
  loop_.Advance(60s);
  EXPECT_EQ(connector_.sent.size(), before);
  EXPECT_EQ(connector_.opened, 1);
}

}  // namespace
}  // namespace stagecoach
