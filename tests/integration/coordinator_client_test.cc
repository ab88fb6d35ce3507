// The tool's client against a coordinator that starts late.
#include "cli/coordinator_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "coordinator/service/coordinator_server.h"

namespace stagecoach {
namespace {

// Listens on a free port without serving anything.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }
  int port() const { return port_; }
  // Someone has tried, and was sent away.
  void RefuseOne() {
    const int peer = accept(socket_, nullptr, nullptr);
    EXPECT_GE(peer, 0);
    close(peer);
  }

 private:
  const int socket_;
  int port_ = 0;
};

// The first call failed at once.
TEST(CoordinatorClientTest, CoordinatorThatIsJustStarting_IsWaitedFor) {
  auto listener = std::make_unique<Listener>();
  CoordinatorOptions options;
  options.listen = absl::StrCat("127.0.0.1:", listener->port());
  CoordinatorClient client(options.listen);
  absl::StatusOr<FleetStatusReply> reply;
  std::thread caller([&] { reply = client.FleetStatus(); });
  listener->RefuseOne();
  listener.reset();
  const auto server = CoordinatorServer::Start(options);
  caller.join();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->version().empty());
}

TEST(CoordinatorClientTest, CoordinatorThatIsGone_IsSaidAtOnce) {
  CoordinatorOptions options;
  options.listen = "127.0.0.1:0";
  auto server = CoordinatorServer::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*server)->port());
  CoordinatorClient client(address);
  ASSERT_TRUE(client.FleetStatus().ok());
  server->reset();
  const auto before = std::chrono::steady_clock::now();
  const absl::Status status = client.Stop("run");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(8));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(address), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace stagecoach
