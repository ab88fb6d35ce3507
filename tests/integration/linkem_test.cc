// The link emulator against the clock: rate and round trip within 3 % of what was asked for, and the rules of a link.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/linkem/link_emulator.h"

namespace stagecoach {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr timeval kSocketTimeout{20, 0};  // a broken emulator fails the test instead of hanging it

double NowSeconds() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kSocketTimeout, sizeof(kSocketTimeout));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &kSocketTimeout, sizeof(kSocketTimeout));
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() { Close(); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  int fd() const { return fd_; }
  bool SendAll(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }
  std::string Receive(size_t count) const {
    std::string bytes(count, '\0');
    size_t have = 0;
    while (have < count) {
      const ssize_t got = recv(fd_, bytes.data() + have, count - have, 0);
      if (got <= 0) break;
      have += static_cast<size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }

 private:
  int fd_;
};

// An emulator on a thread with links a->b and b->a to two listening servers of the test.
class EmulatedPair {
 public:
  // Link 1 goes from `second_from`: from "a" to "c" if that is a too.
  explicit EmulatedPair(const LinkShape& shape, const std::vector<EmulatedEnd>& ends = {},
                        const std::string& second_from = "b") {
    for (int& server : servers_) {
      server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = Loopback(0);
      EXPECT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      EXPECT_EQ(listen(server, 16), 0);
      setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &kSocketTimeout, sizeof(kSocketTimeout));
    }
    auto emulator = LinkEmulator::Create(
        {{"a", "b", 0, absl::StrCat("127.0.0.1:", PortOf(servers_[0])), shape},
         {second_from, second_from == "a" ? "c" : "a", 0, absl::StrCat("127.0.0.1:", PortOf(servers_[1])), shape}},
        /*seed=*/7, ends);
    EXPECT_TRUE(emulator.ok()) << emulator.status();
    emulator_ = *std::move(emulator);
    thread_ = std::thread([this] { EXPECT_TRUE(emulator_->Run().ok()); });
  }
  ~EmulatedPair() {
    Finish();
    for (const int server : servers_) close(server);
  }
  std::vector<LinkEmulator::DirectionCount> Finish() {
    if (thread_.joinable()) {
      emulator_->Stop();
      thread_.join();
    }
    return emulator_->Counts();
  }
  // Client and server end of a new connection through link 0 (a dials b) or 1 (b dials a).
  std::pair<Socket, Socket> Connect(size_t link = 0) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(emulator_->port(link));
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const int accepted = accept(servers_[link], nullptr, nullptr);
    EXPECT_GE(accepted, 0);
    return {Socket(fd), Socket(accepted)};
  }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  static uint16_t PortOf(int fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  int servers_[2];
  std::unique_ptr<LinkEmulator> emulator_;
  std::thread thread_;
};

LinkShape Shape(double megabits, double round_trip_ms) {
  return {megabits * 1e6 / 8, LinkTime(static_cast<int64_t>(round_trip_ms * 0.5e6)), LinkTime(0), 0};
}

// Seconds of one round trip of a small message, the smallest of `rounds`.
double MeasureRoundTrip(const Socket& near, const Socket& far, int rounds) {
  double best = INFINITY;
  for (int i = 0; i < rounds; ++i) {
    const double start = NowSeconds();
    EXPECT_TRUE(near.SendAll("ping"));
    EXPECT_EQ(far.Receive(4), "ping");
    EXPECT_TRUE(far.SendAll("pong"));
    EXPECT_EQ(near.Receive(4), "pong");
    best = std::min(best, NowSeconds() - start);
  }
  return best;
}

// Bytes a second between the first and the last piece that arrive.
double MeasureGoodput(const Socket& near, const Socket& far, size_t bytes) {
  std::thread sender([&] { EXPECT_TRUE(near.SendAll(std::string(bytes, 'x'))); });
  std::string piece(size_t{1} << 16, '\0');
  size_t received = 0, counted = 0;
  double first = 0, last = 0;
  while (received < bytes) {
    const ssize_t count = recv(far.fd(), piece.data(), piece.size(), 0);
    if (count <= 0) break;
    last = NowSeconds();
    if (received == 0) {
      first = last;
    } else {
      counted += static_cast<size_t>(count);
    }
    received += static_cast<size_t>(count);
  }
  sender.join();
  EXPECT_EQ(received, bytes);
  return static_cast<double>(counted) / (last - first);
}

// Other programs on the machine can only slow a transfer: the first of three tries that is right counts.
constexpr int kTries = 3;

struct Profile {
  double megabits, round_trip_ms;
};
class LinkAccuracyTest : public ::testing::TestWithParam<Profile> {};

TEST_P(LinkAccuracyTest, RateAndRoundTrip_WithinThreePercent) {
  const auto [megabits, round_trip_ms] = GetParam();
  EmulatedPair pair(Shape(megabits, round_trip_ms));
  auto [near, far] = pair.Connect();
  const double round_trip = MeasureRoundTrip(near, far, 12) * 1e3;
  EXPECT_NEAR(round_trip, round_trip_ms, 0.03 * round_trip_ms);
  double rate = 0;
  for (int attempt = 0; attempt < kTries && std::abs(rate - megabits) > 0.03 * megabits; ++attempt) {
    rate = MeasureGoodput(near, far, static_cast<size_t>(megabits * 1e6 / 8 * 0.6)) * 8 / 1e6;
  }
  std::printf("asked %g Mbit/s %g ms, seen %.2f Mbit/s %.2f ms\n", megabits, round_trip_ms, rate, round_trip);
  EXPECT_NEAR(rate, megabits, 0.03 * megabits);
}
INSTANTIATE_TEST_SUITE_P(AskedFor, LinkAccuracyTest,
                         ::testing::Values(Profile{10, 10}, Profile{10, 50}, Profile{10, 150}, Profile{80, 10},
                                           Profile{80, 50}, Profile{80, 150}, Profile{1000, 10}, Profile{1000, 50},
                                           Profile{1000, 150}));

TEST(LinkEmulatorTest, TwoConnectionsOfOnePair_ShareTheRate) {
  EmulatedPair pair(Shape(80, 10));
  auto [near1, far1] = pair.Connect(0);
  auto [near2, far2] = pair.Connect(0);
  double rate1 = 0, rate2 = 0;
  for (int attempt = 0; attempt < kTries && std::abs((rate1 + rate2) * 8 / 1e6 - 80) > 8; ++attempt) {
    std::thread other([&, near = &near1, far = &far1] { rate1 = MeasureGoodput(*near, *far, 3'000'000); });
    rate2 = MeasureGoodput(near2, far2, 3'000'000);
    other.join();
  }
  EXPECT_NEAR((rate1 + rate2) * 8 / 1e6, 80, 8);
  EXPECT_NEAR(rate1, rate2, 0.2 * rate2);
}

TEST(LinkEmulatorTest, BothDirections_AreFullDuplex) {
  EmulatedPair pair(Shape(80, 10));
  auto [near1, far1] = pair.Connect(0);
  auto [near2, far2] = pair.Connect(1);  // b dials a: the other direction
  double rate1 = 0, rate2 = 0;
  for (int attempt = 0; attempt < kTries && std::abs(std::min(rate1, rate2) * 8 / 1e6 - 80) > 6; ++attempt) {
    std::thread other([&, near = &near1, far = &far1] { rate1 = MeasureGoodput(*near, *far, 5'000'000); });
    rate2 = MeasureGoodput(near2, far2, 5'000'000);
    other.join();
  }
  EXPECT_NEAR(rate1 * 8 / 1e6, 80, 6);
  EXPECT_NEAR(rate2 * 8 / 1e6, 80, 6);
}

TEST(LinkEmulatorTest, HalfClose_LetsTheAnswerThrough) {
  EmulatedPair pair(Shape(80, 10));
  auto [near, far] = pair.Connect();
  ASSERT_TRUE(near.SendAll("question"));
  shutdown(near.fd(), SHUT_WR);
  EXPECT_EQ(far.Receive(100), "question");  // up to the end of the stream
  ASSERT_TRUE(far.SendAll("answer"));
  EXPECT_EQ(near.Receive(6), "answer");
  far.Close();
  EXPECT_EQ(near.Receive(1), "");
}

TEST(LinkEmulatorTest, ReceiverThatDoesNotRead_StopsTheSender) {
  EmulatedPair pair(Shape(1000, 10));
  auto [near, far] = pair.Connect();
  const std::string piece(size_t{1} << 16, 'x');
  const double start = NowSeconds();
  double last_progress = start;
  size_t sent = 0;
  // 1 Gbit/s would bring 125 MB in a second; the emulator and the four socket buffers hold a bounded part of that.
  while (NowSeconds() - last_progress < 0.5 && sent < size_t{100'000'000}) {
    const ssize_t count = send(near.fd(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<size_t>(count);
      last_progress = NowSeconds();
    }
  }
  EXPECT_LT(sent, size_t{60'000'000});
  far.Receive(size_t{1} << 20);  // the stream goes on where it was
}

TEST(LinkEmulatorTest, ClosedTarget_ClosesTheConnection) {
  LinkShape shape = Shape(80, 10);
  auto emulator = LinkEmulator::Create({{"a", "b", 0, "@/nonexistent/port", shape}}, 1);
  ASSERT_TRUE(emulator.ok());
  std::thread thread([&] { EXPECT_TRUE((*emulator)->Run().ok()); });
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons((*emulator)->port(0));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  Socket client(fd);
  EXPECT_EQ(client.Receive(1), "");
  (*emulator)->Stop();
  thread.join();
}

TEST(LinkEmulatorTest, SharedUplink_IsDividedEvenlyBetweenItsLinks) {
  EmulatedPair pair(Shape(0, 10), {{"a", 40e6 / 8, 0}}, /*second_from=*/"a");
  auto [near, far] = pair.Connect(0);
  auto [near_other, far_other] = pair.Connect(1);
  constexpr size_t kBytes = 5'000'000;  // one second each of half the uplink, two of all of it
  double rate = 0, other_rate = 0;
  std::thread other([&, near = &near_other, far = &far_other] { other_rate = MeasureGoodput(*near, *far, kBytes); });
  rate = MeasureGoodput(near, far, kBytes);
  other.join();
  EXPECT_NEAR(rate * 8 / 1e6, 20, 2);
  EXPECT_NEAR(other_rate * 8 / 1e6, 20, 2);
}

TEST(LinkEmulatorTest, Counts_AreTheBytesOfEachDirection) {
  EmulatedPair pair(Shape(0, 2));
  auto [near, far] = pair.Connect();
  ASSERT_TRUE(near.SendAll(std::string(5000, 'x')));
  EXPECT_EQ(far.Receive(5000).size(), 5000u);
  ASSERT_TRUE(far.SendAll(std::string(300, 'y')));
  EXPECT_EQ(near.Receive(300).size(), 300u);
  for (const auto& count : pair.Finish()) EXPECT_EQ(count.bytes, count.from == "a" ? 5000u : 300u);
}

}  // namespace
}  // namespace stagecoach
